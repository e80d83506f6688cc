"""Work that is good by itself and does not fit what landed: who handles it, and with which evidence."""

import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.policy.decide import decide
from fleet.core.policy.landing import integration_failure
from fleet.core.policy.remedies import RESOLVE_GUIDANCE
from fleet.core.state.state import RunState
from tests.fleet.core.pretend import subtask_of
from tests.fleet.hands import Book, probed, queued

CLASH = f.Failure(kind="conflict", summary="conflicts with landed work: text.py", evidence="text.py")


async def clashed(book: Book, id_: str) -> Book:
    """`id_` is probed alone and does not merge."""
    book.state = evolve(book.state, f.BatchFormed(at=1.0, number=99, members=members(book, id_)))
    number = len(subtask_of(book.state, id_).attempts)
    out = f.Ejected(subtask=id_, attempt=number, failure=CLASH)
    await book.record(f.BatchTested(at=1.0, number=99, tip=book.state.tip, ejected=(out,)))
    return book


def members(book: Book, *ids: str) -> tuple[f.Member, ...]:
    attempts = ((id_, subtask_of(book.state, id_).attempts[-1]) for id_ in ids)
    return tuple(f.Member(subtask=id_, attempt=last.number, commit=last.commit or "") for id_, last in attempts)


def remedies(book: Book) -> list[str]:
    return [fact.remedy for fact in book.facts if isinstance(fact, f.RemedyChosen)]


async def test_a_conflict_is_resolved_on_the_new_base_without_the_planner() -> None:
    book = await clashed(queued("a"), "a")
    assert remedies(book) == ["resolve"]
    attempt = subtask_of(book.state, "a").attempts[-1]
    assert (attempt.number, attempt.strategy, attempt.guidance) == (2, "resolve", RESOLVE_GUIDANCE["conflict"])
    assert attempt.base == book.state.tip
    assert book.state.planning.calls == 0


async def test_a_second_conflict_goes_to_the_planner() -> None:
    book = await clashed(queued("a"), "a")
    report = f.Report(status="done", summary="again")
    await book.record(
        f.AttemptCommitted(at=2.0, subtask="a", number=2, commit="c2", paths=("a",), report=report),
        f.AttemptVerified(at=2.0, subtask="a", number=2, checks=()),
    )
    book.state = evolve(book.state, f.BatchTested(at=2.0, number=book.state.landing.batches, tip=book.state.tip))
    await clashed(book, "a")
    assert remedies(book) == ["resolve", "planner"]
    assert book.state.planning.why == "failures"


async def test_a_resolved_conflict_counts_as_recovered_by_that() -> None:
    book = await clashed(queued("a"), "a")
    report = f.Report(status="done", summary="again")
    await book.record(
        f.AttemptCommitted(at=2.0, subtask="a", number=2, commit="c2", paths=("a",), report=report),
        f.AttemptVerified(at=2.0, subtask="a", number=2, checks=()),
    )
    [probe] = book.state.landing.open_batches
    await book.record(f.BatchTested(at=3.0, number=probe.number, tip="new", landed=probe.members))
    [incident] = book.state.incidents
    assert (incident.recovered, incident.strategy) == (True, "resolve")


async def test_a_subtask_without_tries_left_asks_a_human_instead() -> None:
    book = await clashed(queued("a", Policy(max_attempts=1)), "a")
    assert remedies(book) == []
    assert [question.about for question in book.state.open_questions()] == ["a"]


async def test_a_conflict_that_a_worker_only_speaks_of_goes_to_the_planner() -> None:
    book = queued("a")
    failure = f.Failure(kind="conflict", summary="the code contradicts the goal")
    state = book.state
    state = evolve(
        state, f.AttemptFailed(at=1.0, subtask="a", number=1, failure=f.Failure(kind="transient", summary=""))
    )
    state = evolve(state, f.RemedyChosen(at=1.0, subtask="a", number=1, remedy="retry"))
    started = f.AttemptStarted(at=1.0, subtask="a", number=2, worker="coder", model=None, base="base", strategy="retry")
    state = evolve(state, started)
    state = evolve(state, f.AttemptFailed(at=1.0, subtask="a", number=2, failure=failure))
    chosen = [fact for fact in decide(state, 1.0) if isinstance(fact, f.RemedyChosen)]
    assert [fact.remedy for fact in chosen] == ["planner"]


def red(state: RunState, output: str) -> RunState:
    """`b` is the one suspect, after `a` landed."""
    check = f.CheckRun(criterion="the gate", command="make test", passed=False, exit_code=1, output=output)
    book = probed(Book(state), 1, 2)
    one, two = book.state.landing.open_batches
    state = evolve(book.state, f.BatchTested(at=5.0, number=two.number, tip="base", red=True, checks=(check,)))
    return evolve(state, f.BatchTested(at=6.0, number=one.number, tip="new", landed=one.members))


@pytest.mark.parametrize("output", ["a:3: NameError", "in /repo/a line 3"])
def test_a_candidate_red_on_the_tip_gets_what_landed_since_and_touches_what_fails(output: str) -> None:
    state = red(queued("ab").state, output)
    assert state.landing.suspects == ("b",)
    failure = integration_failure(state, SubtaskId("b"), state.landing.suspicion)
    assert failure.kind == "integration"
    assert failure.summary == "fails when merged with work that landed since: the gate. It may contradict a"
    assert failure.evidence.startswith(f"$ make test\n(exit code 1)\n{output}")
    assert failure.evidence.endswith(
        "Landed since, changing files named in the failure:\n- a: Build a. built it (changed a)"
    )


def test_where_nothing_landed_since_nothing_is_said_about_it() -> None:
    check = f.CheckRun(criterion="the gate", command="make test", passed=False, exit_code=1)
    failure = integration_failure(queued("a").state, SubtaskId("a"), (check,))
    assert (failure.kind, failure.summary) == ("integration", "passes its own checks, but breaks: the gate")


def test_where_nothing_that_landed_is_named_all_of_it_is_listed_and_none_accused() -> None:
    state = red(queued("ab").state, "segmentation fault")
    failure = integration_failure(state, SubtaskId("b"), state.landing.suspicion)
    assert "conflicts with" not in failure.summary
    assert "none of which changes a file named in the failure:\n- a: Build a." in failure.evidence


def test_where_nothing_landed_since_the_work_alone_is_at_fault() -> None:
    book = probed(queued("a", Policy(reruns=0)), 1)
    check = f.CheckRun(criterion="the gate", command="make test", passed=False)
    state = evolve(book.state, f.BatchTested(at=5.0, number=1, tip="base", red=True, checks=(check,)))
    [fact] = decide(state, 6.0)
    assert isinstance(fact, f.AttemptFailed)
    assert "Landed since" not in fact.failure.evidence
