"""Raises an exception in each function that the engine calls, one at a time, and counts the damage. Expected: none.

    python -m chaos.errors                        every place: an exception once, at every call, about one subtask
    python -m chaos.errors --share 8              every eighth place
    python -m chaos.errors --only loop._lane      the places whose names hold this text

The places are found by tracing runs without exceptions: each called function of the engine, the core and the adapters
is one. The adapters are in memory, so that a run takes milliseconds. It counts attempts used up, work paid for twice,
finished commits lost, runs that did not end, runs that did not land because of an optional step, and subtasks that did
not land because of another subtask's step. The exit code is 1 if any of these is not 0.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import anyio

from chaos.raising import InjectedError, Mode, Place, called, raising
from fleet.core.facts import facts as f
from fleet.core.plans.plan import Criterion
from fleet.core.plans.revision import Revision
from fleet.core.state.state import RunState
from fleet.engine.checks import Gate
from fleet.errors import FleetError
from fleet.ports.agents import PlannerBrief, WorkerBrief
from scripts.frame import MET, MISSED, command_line, exit_with, say
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import DONE, FakeFleet, FakePlanner, FakeWorker, finishes

SKELETON = ("lanes.Lanes.", "loop.Engine.", "loop._", "bugs.", "internal_errors.", "evolve.", "state.RunState.ended")
"""Functions that handle exceptions, and those that apply facts. If they raise, the run stops immediately and is
resumed."""
LIMIT_S = 8.0
GATE = Gate((Criterion(criterion="the gate", run="without bad", fails_before=False),))


# ---- the runs -------------------------------------------------------------------------------------------------------


def planned_run() -> FakeFleet:
    """An epic: a planner, a failure that it answers, work that does not merge at first, and a red gate."""

    def plans(brief: PlannerBrief) -> Revision:
        if not brief.state["subtasks"]:
            return Revision(assessment="begin", add=plan_of("a", "b needs a", "c", "d", "torn").subtasks)
        stuck = [row["id"] for row in brief.state["subtasks"] if row["status"] == "failed"]
        retry = [{"id": id_, "guidance": "mind the gap"} for id_ in stuck]
        return Revision.model_validate({"assessment": "again", "retry": retry}) if stuck else finishes(brief)

    def works(brief: WorkerBrief) -> f.Report | f.Failure:
        fails = brief.subtask.id == "c" and brief.attempt == 1
        return f.Failure(kind="budget", summary="all turns are spent") if fails else DONE

    fleet = FakeFleet(planner=FakePlanner(plans), worker=FakeWorker(works), gate=GATE)
    fleet.worktrees.notes = "run make first"
    return fleet


def given_run() -> FakeFleet:
    """A plan that came with the run: no planner has a say."""
    fleet = FakeFleet(plan_of("a", "b needs a", "c", failure_action="ask"), gate=GATE)
    fleet.worktrees.unchanged.add("nobody")
    return fleet


RUNS: dict[str, Callable[[], FakeFleet]] = {"planned": planned_run, "given": given_run}
ABOUT = {"planned": "d", "given": "c"}
"""Subtask that exceptions affect in each run. No other subtask depends on it."""


# ---- what it costs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """Damage of an exception in one place."""

    place: str
    run: str
    mode: Mode
    raised: int
    ending: str
    used: int = 0
    """Attempts used up beyond those of the run without exceptions."""
    again: int = 0
    """Work paid for twice: workers started again, and planner calls repeated after an exception."""
    lost: int = 0
    """Commits of finished work that are not pinned any more."""
    hung: bool = False
    spoiled: bool = False
    """Whether the run did not land although the step was optional."""
    kept: int = 0
    """Subtasks that did not land because of a step for another one, which they do not need."""

    @property
    def is_free(self) -> bool:
        return not (self.used or self.again or self.lost or self.hung or self.spoiled or self.kept)


def cost(place: Place, run: str, mode: Mode, *, fleet: FakeFleet | None = None, limit_s: float = LIMIT_S) -> Cost:
    """Play a run in which one function raises, with another fleet if there is one."""
    fleet, planned = fleet or RUNS[run](), 1 if run == "planned" else 0
    ended = "did not end"

    async def play() -> RunState | None:
        nonlocal ended
        with anyio.move_on_after(limit_s):
            try:
                state = await fleet.run()
            except Exception as error:  # noqa: BLE001 - it is what is looked at
                ended = _stopped(error)
                return None
            ended = state.ending or "drained"
            return state
        return None

    with raising(place.function, mode, ABOUT[run]) as (raised, begin):
        fleet.memory.before_append = begin  # not while the journal is replayed
        anyio.run(play)
    if ended == "stopped with a message" or (ended == "stopped" and place.name.startswith(SKELETON)):
        ended = f"{ended}, resumed: {anyio.run(fleet.run).ending}"
        return Cost(place.name, run, mode, len(raised), ended, hung=ended.endswith("None"))
    state = fleet.memory.replayed(fleet.first)
    used = sum(subtask.counted for subtask in state.subtasks.values())
    pinned = {change.commit for change in fleet.git.pins.values()}
    facts = fleet.memory.facts
    finished = [fact.commit for fact in facts if isinstance(fact, f.AttemptCommitted)]
    return Cost(
        place.name,
        run,
        mode,
        raised=len(raised),
        ending=ended,
        used=max(0, used - planned),
        again=_worked_twice(fleet, facts) + _called_twice(facts),
        lost=sum(commit not in pinned for commit in finished),
        hung=ended not in {"landed", "partial", "failed"},
        spoiled=place.is_advice and ended != "landed",
        kept=_kept(state, ABOUT[run]) if mode == "about" and place.is_step else 0,
    )


def _kept(state: RunState, about: str) -> int:
    return sum(subtask.landed is None for subtask in state.subtasks.values() if subtask.id != about)


def _stopped(error: BaseException) -> str:
    """Return how an engine ended that raised this."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FleetError):
        return "stopped with a message"
    return "stopped" if isinstance(error, InjectedError) else f"stopped by {error!r}"


def _worked_twice(fleet: FakeFleet, facts: list[f.Fact]) -> int:
    """Return how often a worker started again although its earlier work was intact."""
    failed = [fact for fact in facts if isinstance(fact, f.AttemptFailed) and fact.failure.kind not in f.FREE]
    wrong = Counter(fact.subtask for fact in failed)
    return sum(max(0, times - 1 - wrong[id_]) for id_, times in fleet.worker.paid.items())


def _called_twice(facts: list[f.Fact]) -> int:
    """Return how many planner calls followed a call that an exception had ended."""
    again, was_error = 0, False
    for fact in facts:
        if isinstance(fact, f.PlannerCalled):
            again += was_error
        elif isinstance(fact, f.PlannerFailed):
            was_error = fact.failure.kind == "internal"
    return again


# ---- the program ----------------------------------------------------------------------------------------------------


def costs(*, share: int = 1, only: str = "") -> Iterator[Cost]:
    for run, make in RUNS.items():
        places = [place for place in called(make) if only in place.name]
        for place in (place for number, place in enumerate(places) if place.is_advice or number % share == 0):
            yield cost(place, run, "once")
            yield cost(place, run, "always")
            yield cost(place, run, "about")


def main() -> int:
    parser = command_line("chaos.errors", __doc__)
    parser.add_argument("--share", type=int, metavar="N", default=1, help="every N-th place (1)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only places whose name holds this text")
    args = parser.parse_args()
    played = list(costs(share=args.share, only=args.only))
    for each in played:
        if not each.is_free:
            say(each)
    kept = [each for each in played if each.raised]
    endings = Counter(each.ending for each in kept).most_common()
    say(f"{len({each.place for each in kept})} places, {len(kept)} runs in which one of them raised")
    say("endings: " + ", ".join(f"{ending} {times}" for ending, times in endings))
    for measure, figure in (
        ("attempts used up", sum(each.used for each in kept)),
        ("work paid for twice", sum(each.again for each in kept)),
        ("finished commits lost", sum(each.lost for each in kept)),
        ("runs that did not end by themselves", sum(each.hung for each in kept)),
        ("runs that advice kept from landing", sum(each.spoiled for each in kept)),
        ("subtasks that another one kept from landing", sum(each.kept for each in kept)),
    ):
        say(f"{measure:<44} {figure:>4}  (wanted: 0)")
    return MET if all(each.is_free for each in played) else MISSED


if __name__ == "__main__":
    exit_with(main)
