"""What must hold in every run, whatever fails: played with chance, in a pretended world."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import (
    FACT,
    AttemptCommitted,
    AttemptFailed,
    AttemptStarted,
    AttemptVerified,
    BatchTested,
    Member,
)
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy, ReviewRules
from fleet.core.plans.plan import find_cycle
from fleet.core.policy.planner_view import planner_state
from fleet.core.state.state import RunState
from fleet.core.state.status import area_depth
from fleet.read.run import status_view
from tests.effort import examples
from tests.fleet.core.pretend import Pretend

STEPS = 3_000
policies = st.builds(
    Policy,
    workers=st.integers(1, 5),
    max_attempts=st.integers(1, 3),
    max_retries=st.integers(0, 3),
    max_depth=st.integers(0, 2),
    max_planner_calls=st.integers(1, 60),
    max_planner_failures=st.integers(1, 3),
    batch=st.integers(1, 8),
    slots=st.integers(1, 4),
    every_commit=st.booleans(),
    every_commit_within_s=st.sampled_from([0.0, 60.0]),
    reruns=st.integers(0, 2),
    check_base=st.booleans(),
    allow_red_base=st.booleans(),
    budget_dollars=st.none() | st.floats(0.02, 1.0),
    budget_minutes=st.none() | st.floats(0.1, 5.0),
    budget_tokens=st.none() | st.integers(50, 5_000),
    budget_attempts=st.none() | st.integers(1, 40),
    budget_soft=st.sampled_from([0.5, 0.8, 1.0]),
    subtask_dollars=st.none() | st.floats(0.01, 0.2),
    subtask_tokens=st.none() | st.integers(20, 500),
    answer_wait_s=st.just(30.0),
    review=st.booleans(),
    reviewing=st.sampled_from([None, "human", "auto", "none"]),
    rules=st.builds(
        ReviewRules, max_risk=st.sampled_from(["low", "medium"]), workers=st.sampled_from([(), ("coder",)])
    ),
    max_areas=st.integers(0, 6),
    area_depth=st.integers(0, 2),
)
shares = st.sampled_from((0.0, 0.0, 0.2, 0.5))
worlds = st.builds(Pretend, seed=st.integers(0, 10**9), policy=policies, trouble=st.floats(0.0, 0.6), areas=shares)


def steps(world: Pretend) -> Iterator[None]:
    """Play to the end, but not for ever."""
    for _ in range(STEPS):
        if world.state.ended:
            return
        world.step()
        yield
    raise AssertionError(f"no end in sight: {status_view(world.state, world.now, alive=True)}")


def needs_of(state: RunState) -> dict[SubtaskId, tuple[SubtaskId, ...]]:
    return {subtask.id: subtask.depends_on for subtask in state.plan.subtasks}


@given(worlds)
@examples(150)
def test_every_run_ends_and_always_has_something_pending_until_then(world: Pretend) -> None:
    for _ in steps(world):
        assert world.state.ended or world.pending(), status_view(world.state, world.now, alive=True)


@given(worlds)
def test_limits_are_never_exceeded(world: Pretend) -> None:
    policy = world.policy
    for _ in steps(world):
        state = world.state
        assert len(state.running()) <= policy.workers
        assert state.planning.calls <= policy.max_planner_calls
        assert all(subtask.counted <= policy.max_attempts for subtask in state.subtasks.values())
        assert sum(id_ in state.areas for id_ in state.plan.ids) <= policy.max_areas
        assert all(area_depth(state, area) <= policy.area_depth for area in state.areas)
        assert all(subtask.depth <= policy.max_depth for subtask in state.subtasks.values())
        assert len(state.landing.open_batches) <= policy.slots
        assert all(len(probe.members) <= policy.batch for probe in state.landing.open_batches)


@given(worlds)
def test_probes_are_the_front_of_the_queue_and_so_are_suspects_in_its_order(world: Pretend) -> None:
    for _ in steps(world):
        landing = world.state.landing
        for probe in landing.prefixes:
            members = tuple(member.subtask for member in probe.members)
            assert members == landing.queue[: len(members)]
        assert [id_ for id_ in landing.queue if id_ in landing.suspects] == list(landing.suspects)


@given(worlds)
@examples(150)
def test_the_innocent_land_and_only_the_guilty_go_back(world: Pretend) -> None:
    for _ in steps(world):
        pass
    verified: dict[tuple[str, int], Member] = {}
    for fact in world.facts:
        if isinstance(fact, AttemptCommitted):
            key = (fact.subtask, fact.number)
            verified[key] = Member(subtask=fact.subtask, attempt=fact.number, commit=fact.commit)
        elif isinstance(fact, BatchTested):
            assert not any(map(world.bad, fact.landed))
            assert not any(out.failure.kind == "integration" for out in fact.ejected)
        elif isinstance(fact, AttemptFailed) and fact.failure.summary.startswith("merged onto"):
            assert world.bad(verified[fact.subtask, fact.number])


@given(worlds)
def test_dependencies_land_first_and_each_subtask_lands_once(world: Pretend) -> None:
    for _ in steps(world):
        assert find_cycle(needs_of(world.state)) == ()
    order = {id_: index for index, id_ in enumerate(world.landed)}
    assert len(order) == len(world.landed)
    landed: set[str] = set()
    finished: set[str] = set()
    for fact in world.facts:
        if isinstance(fact, AttemptVerified) and fact.subtask in world.state.areas:
            finished.add(fact.subtask)
        if isinstance(fact, AttemptStarted):
            missing = set(needs_of(world.state)[fact.subtask]) - order.keys() - finished
            assert not missing, f"{fact.subtask} started before {missing}"
        landed |= {member.subtask for member in getattr(fact, "landed", ())}
    assert landed == set(order)


@given(worlds)
@examples(60)
def test_nothing_begins_before_the_base_is_known_and_nothing_on_a_red_one_unless_allowed(world: Pretend) -> None:
    for _ in steps(world):
        state = world.state
        begun = state.attempts + state.planning.calls > 0
        assert not begun or state.base_checked or not world.policy.check_base
        assert not begun or not state.red_base or world.policy.allow_red_base


@given(worlds)
@examples(60)
def test_replaying_the_journal_gives_the_live_state(world: Pretend) -> None:
    for _ in steps(world):
        pass
    state: RunState | None = None
    for fact in world.facts:
        state = evolve(state, FACT.validate_json(fact.model_dump_json()))
    assert state == world.state


@given(worlds)
@examples(40)
def test_every_incident_is_closed_when_the_run_ends_and_the_counts_add_up(world: Pretend) -> None:
    for _ in steps(world):
        planner_state(world.state, world.now)
    view = status_view(world.state, world.now, alive=False)
    incidents = view.incidents
    assert incidents.recovered + incidents.unrecovered == incidents.opened
    assert sum(view.subtasks.values()) == len(world.state.subtasks)
    if view.state == "landed":
        assert set(view.subtasks) <= {"merged", "split", "dropped"}
