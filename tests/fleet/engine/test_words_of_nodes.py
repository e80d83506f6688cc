"""What a node reports of checks, and what this machine finds: a node alone makes no honest work fail."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.plan import Criterion
from fleet.engine.checks import MOST_WRONG_REDS, Checks, Gate, NodeTrust
from fleet.engine.this_machine import ThisMachine
from fleet.ports.orders import ChecksOrder
from fleet.ports.worktrees import SetupFailedError
from tests.fleet.hands import BASE, Book, Clock, PaperHands, queued

TEST = Criterion(criterion="it works", run="test")
GUARD = Criterion(criterion="the rest works", run="guard", fails_before=False)
PYTEST = Criterion(criterion="its tests pass", run="python -m pytest", fails_before=False)
LINT = Criterion(criterion="nothing new", run="lint", tests="sarif:lint.sarif", fails_before=False)
Answer = Callable[[Sha, Criterion], f.CheckRun]


def red(commit: Sha, criterion: Criterion) -> f.CheckRun:
    del commit
    return f.CheckRun(criterion=criterion.criterion, command=criterion.run or "", passed=False, node="one")


def green(commit: Sha, criterion: Criterion, reported: f.RanTests | None = None) -> f.CheckRun:
    return red(commit, criterion).model_copy(update={"passed": True, "ran_tests": reported})


def named(*names: str) -> f.RanTests:
    return f.RanTests(ran=frozenset(names), passed=frozenset(names))


@dataclass(frozen=True, slots=True)
class Beside:
    """A node that does all checks but those whose verdict counts, which are run here."""

    here: ThisMachine
    says: Answer

    async def attempt(self, *_: object) -> object:
        raise AssertionError

    async def check(self, order: ChecksOrder) -> tuple[f.CheckRun, ...]:
        if order.lands:
            return await self.here.check(order)
        return tuple(self.says(order.commit, criterion) for criterion in order.criteria)


def judged(hands: PaperHands, says: Answer, *, reruns: int = 1, book: Book | None = None) -> Checks:
    node, book, clock = Beside(ThisMachine(hands.lease), says), book or queued("a"), Clock()
    gate = Gate(criteria=(GUARD,), reruns=reruns)
    return Checks(book, hands, hands, clock, gate, node, NodeTrust(book, clock))  # type: ignore[arg-type]


@pytest.mark.parametrize("reruns", [0, 1, 2])
async def test_what_only_a_node_finds_red_counts_as_this_machine_finds_it(reruns: int) -> None:
    hands, book = PaperHands(), queued("a")
    [run] = await judged(hands, red, reruns=reruns, book=book).on(Sha("base a"), [TEST])
    assert (run.passed, run.flaky, run.node) == (True, False, "")
    assert hands.ran == [("a base", "test")]
    assert book.state.warnings == (
        "node one reported that `test` fails on base a. It passes on this machine, and that result counts",
    )


@pytest.mark.parametrize("reruns", [0, 1])
async def test_what_a_node_and_this_machine_find_red_is_red_and_is_run_no_more_often_than_here(reruns: int) -> None:
    hands, book = PaperHands(passes=lambda *_: False), queued("a")
    checked = judged(hands, red, reruns=reruns, book=book)
    [run] = await checked.on(Sha("base a"), [TEST])
    assert (run.fine, run.node, len(hands.ran)) == (False, "", 1)
    assert book.state.warnings == ()
    assert await checked.on(Sha("base a"), [TEST]) == (run,), "it is final"
    assert len(hands.ran) == 1


async def test_a_red_base_that_only_a_node_sees_excuses_nothing_and_a_red_guard_there_stops_no_subtask() -> None:
    checked = judged(PaperHands(), red)
    [guard] = await checked.on(BASE, [GUARD])
    assert guard.passed
    before = await judged(PaperHands(), red).before_work([TEST, GUARD], BASE)
    assert not isinstance(before, f.Failure)
    assert [(run.command, run.passed) for run in before] == [("test", False), ("guard", True)]


async def test_a_set_up_that_breaks_only_on_a_node_blames_no_commit() -> None:
    def breaks(commit: Sha, criterion: Criterion) -> f.CheckRun:
        raise SetupFailedError(f.Failure(kind="infrastructure", summary="no npm"), red(commit, criterion))

    hands = PaperHands()
    [run] = await judged(hands, breaks).on(Sha("base a"), [TEST])
    assert (run.passed, run.node) == (True, "")
    red_here = PaperHands(passes=lambda *_: False)
    assert not isinstance(await judged(red_here, breaks).before_work([TEST], BASE), f.Failure)


async def test_a_node_whose_reds_all_pass_here_rests_and_a_success_or_a_confirmed_red_clears_it() -> None:
    rested = list[str]()
    hands = PaperHands(passes=lambda tree, *_: "bad" not in tree)
    checked = judged(hands, lambda commit, each: (green if "good" in commit else red)(commit, each))
    checked.trust = NodeTrust(queued("a"), Clock(), rest=lambda node, _: rested.append(node))
    wrong = iter(range(100))
    for between in ("good", "bad"):
        for _ in range(MOST_WRONG_REDS - 1):
            await checked.on(Sha(f"base {next(wrong)}"), [TEST])
        await checked.on(Sha(f"base {between}"), [TEST])
    assert rested == []
    for times in range(MOST_WRONG_REDS + 1):
        assert len(rested) == max(0, times + 1 - MOST_WRONG_REDS)
        await checked.on(Sha(f"base {next(wrong)}"), [TEST])
    assert rested == ["one", "one"], "after its rest, the next one is enough"


async def test_the_same_command_of_a_node_is_warned_about_once() -> None:
    book = queued("a")
    checked = judged(PaperHands(), red, book=book)
    for commit in ("base a", "base b"):
        await checked.on(Sha(commit), [TEST])
    assert len(book.state.warnings) == 1


async def test_tests_that_only_a_node_misses_are_looked_for_here() -> None:
    """On the base it names tests that are not there; on the commit it leaves out one that ran."""

    def says(commit: Sha, criterion: Criterion) -> f.CheckRun:
        return green(commit, criterion, named("a", "made up") if commit == "base" else named("b"))

    hands = ran(lambda _: named("a", "b"))
    checked = judged(hands, says)
    await checked.on(BASE, [PYTEST])
    await checked.on(Sha("base a"), [PYTEST])
    assert await checked.lost(Sha("base a"), BASE, [PYTEST], changed=(), touches=()) == {}
    assert hands.ran == [("a base", PYTEST.run), ("base", PYTEST.run)]
    really = judged(ran(lambda tree: named("a") if tree == "base" else named()), says)
    await really.on(BASE, [PYTEST])
    await really.on(Sha("base a"), [PYTEST])
    assert await really.lost(Sha("base a"), BASE, [PYTEST], changed=(), touches=()) == {"its tests pass": ("a",)}


def ran(reported: Callable[[str], f.RanTests | None]) -> PaperHands:
    """Whatever is run here passes, with this report."""
    hands = PaperHands()
    plain = hands.ask

    def ask(tree: Sha, criterion: Criterion) -> f.CheckRun:
        return plain(tree, criterion).model_copy(update={"ran_tests": reported(tree)})

    hands.ask = ask  # type: ignore[method-assign]
    return hands


@pytest.mark.parametrize(
    ("here", "passes"),
    [
        (None, True),  # the command reports nothing: the node made it up
        (named("a"), False),  # it does: what ended it early on the commit counts as red
    ],
)
async def test_a_command_owes_a_report_that_this_machine_has_seen_and_not_one_that_a_node_claims(
    here: f.RanTests | None, passes: bool
) -> None:
    hands = ran(lambda tree: here if tree == "base" else None)
    checked = judged(hands, lambda commit, each: green(commit, each, named("a")), reruns=0)
    await checked.on(BASE, [TEST])
    assert hands.ran == []
    [run] = (await checked.merged(Sha("base a"), [TEST], sure=False))[-1:]
    assert run.passed == passes
    assert hands.ran.count((BASE, "test")) == 1
    [again] = (await checked.merged(Sha("base b"), [TEST], sure=False))[-1:]
    assert again.passed == passes
    assert hands.ran.count((BASE, "test")) == 1, "it is settled"


async def test_a_number_of_tests_counts_here_although_a_node_claims_that_they_have_names() -> None:
    hands = ran(lambda _: f.RanTests(count=3))
    checked = judged(hands, lambda commit, each: green(commit, each, named("a")))
    await checked.on(BASE, [TEST])
    assert (await checked.merged(Sha("base a"), [TEST], sure=False))[-1].passed


async def test_what_a_node_finds_on_the_base_is_no_measure_for_what_is_new() -> None:
    """Otherwise it could make every finding of the base a new one, or hide a new one among them."""

    def says(commit: Sha, criterion: Criterion) -> f.CheckRun:
        found = frozenset[str]() if commit == "base" else frozenset({"old"})
        return red(commit, criterion).model_copy(update={"ran_tests": f.RanTests(findings=found)})

    hands = ran(lambda _: f.RanTests(findings=frozenset({"old"})))
    checked = judged(hands, says)
    await checked.on(BASE, [LINT])
    assert hands.ran == [("base", "lint")]
    [run] = await checked.on(Sha("base a"), [LINT])
    assert run.passed


async def test_a_resumed_run_takes_a_nodes_number_of_tests_for_no_promise_of_its_command() -> None:
    book = queued("a")
    run = green(BASE, TEST).model_copy(update={"tests": 3, "tree": "base"})
    book.state = evolve(book.state, f.AttemptVerified(at=2.0, subtask="a", number=1, checks=(run,)))
    checked = judged(PaperHands(), green, book=book)
    assert (await checked.merged(Sha("base a"), [TEST], sure=False))[-1].passed
