"""The gate on the base: known before anything is spent, and no reason to blame anyone afterwards."""

from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion
from fleet.core.policy.decide import decide
from fleet.core.policy.effects import CheckBase, effects
from fleet.engine.checks import Checks, Gate, NodeTrust
from fleet.engine.landing import Lander
from fleet.engine.this_machine import ThisMachine
from tests.fleet.core.pretend import started, subtask_of
from tests.fleet.hands import Book, Clock, PaperHands, probed, queued

GATED = Policy(check_base=True)
ALLOWED = Policy(check_base=True, allow_red_base=True, reruns=0)
RED = f.CheckRun(criterion="the gate", command="gate", passed=False, exit_code=2)
FLAKY = RED.model_copy(update={"flaky": True})
GREEN = RED.model_copy(update={"passed": True, "exit_code": 0})


def begun(policy: Policy) -> Book:
    return Book(evolve(None, started(policy)))


def checked(*checks: f.CheckRun) -> f.BaseChecked:
    return f.BaseChecked(at=1.0, base="base", checks=checks)


def kinds(book: Book) -> list[str]:
    return [fact.kind for fact in book.facts]


async def test_the_planner_is_called_only_when_the_base_is_known_to_be_green() -> None:
    book = begun(GATED)
    await book.record()
    assert kinds(book) == []
    assert effects(book.state, 1.0) == (CheckBase(Sha("base")),)
    await book.record(checked(GREEN))
    assert kinds(book) == ["base_checked", "planner_called"]


async def test_a_red_base_ends_the_run_before_anything_is_spent_and_says_what_to_do() -> None:
    book = begun(GATED)
    await book.record(checked(RED))
    assert kinds(book) == ["base_checked", "run_ended"]
    assert book.state.ending == "failed"
    assert book.state.ending_why == (
        "the gate fails on the base main (base) before any work was done: gate (exit code 2). "
        "Fix it, or continue with --allow-red-base"
    )


async def test_a_flaky_gate_is_not_a_red_base() -> None:
    book = begun(GATED)
    await book.record(checked(FLAKY))
    assert kinds(book) == ["base_checked", "planner_called"]


async def test_a_gate_that_can_not_be_run_ends_the_run() -> None:
    book = begun(GATED)
    await book.record(f.BaseChecked(at=1.0, base="base", failure=f.Failure(kind="infrastructure", summary="no box")))
    assert book.state.ending_why == "can't run commands on the base main (base): no box"


async def test_a_run_that_is_opened_again_looks_at_its_base_again() -> None:
    book = begun(GATED)
    await book.record(checked(RED))
    await book.record(f.RunReopened(at=2.0, by="someone"))
    assert (book.state.ended, effects(book.state, 2.0)) == (False, (CheckBase(Sha("base")),))
    await book.record(checked(GREEN))
    assert book.state.planning.open == 1


async def test_on_a_red_base_that_was_allowed_the_gate_holds_nothing_back_until_it_has_passed_once() -> None:
    book = queued("abcd", ALLOWED)
    await book.record(checked(RED))
    assert not book.state.ended
    hands = PaperHands(passes=lambda tree, command, _: command != "gate" or ("b" in tree.split() and "c" not in tree))
    gate = Gate(criteria=(Criterion(criterion="the gate", run="gate", fails_before=False),), reruns=0)
    book.state = evolve(book.state, f.EngineStarted(at=1.0, epoch=1, pid=1, host="h", version="1"))
    for probe in book.state.landing.open_batches:
        book.state = evolve(book.state, f.BatchTested(at=1.0, number=probe.number, tip="base"))
    probed(book, 1)
    work = Lander(
        book,
        hands,
        Checks(book, hands, hands, Clock(), gate, ThisMachine(hands.lease), NodeTrust(book, Clock())),
        Clock(),
    )
    await work.test_batch(book.state.landing.open_batches[0].number)
    assert hands.branch == "base a", "red, as the base was"
    for probe in book.state.landing.open_batches:
        book.state = evolve(book.state, f.BatchTested(at=1.0, number=probe.number, tip=book.state.tip))
    probed(book, 1)
    await work.test_batch(book.state.landing.open_batches[0].number)
    assert (hands.branch, book.state.red_base) == ("base a b", ())
    for probe in book.state.landing.open_batches:
        book.state = evolve(book.state, f.BatchTested(at=1.0, number=probe.number, tip=book.state.tip))
    probed(book, 1)
    await work.test_batch(book.state.landing.open_batches[0].number)
    assert hands.branch == "base a b", "from now on it has to stay green"
    assert subtask_of(book.state, "c").attempts[0].failure is not None


def test_without_a_gate_nothing_waits() -> None:
    [fact] = decide(begun(Policy()).state, 1.0)
    assert isinstance(fact, f.PlannerCalled)


async def test_a_resumed_run_may_accept_a_red_base_that_it_would_have_refused() -> None:
    book = begun(GATED)
    await book.record(checked(RED))
    await book.record(f.RunReopened(at=2.0, by="ada"), f.LimitsChanged(at=2.0, by="ada", allow_red_base=True))
    await book.record(checked(RED))
    assert (book.state.ended, book.state.planning.open) == (False, 1)
