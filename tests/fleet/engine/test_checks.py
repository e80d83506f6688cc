"""Checks on commits: what is asked once, what is asked again, and what an answer counts for."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.plan import Criterion
from fleet.engine.checks import IN_A_ROW, Checks, Gate, NodeTrust
from fleet.engine.this_machine import ThisMachine
from fleet.ports.orders import ChecksOrder
from fleet.ports.worktrees import SetupFailedError
from tests.fleet.hands import BASE, Book, Clock, PaperHands, PaperLease, queued

TEST = Criterion(criterion="it works", run="test")
GATE = Criterion(criterion="the gate", run="gate", fails_before=False)


def checks(hands: PaperHands, book: Book | None = None, reruns: int = 1) -> Checks:
    book, clock = book or queued("a"), Clock()
    gate = Gate(criteria=(GATE,), reruns=reruns)
    return Checks(book, hands, hands, clock, gate, ThisMachine(hands.lease), NodeTrust(book, clock))


def red_first(_: str, __: str, time: int) -> bool:
    return time > 1


async def test_a_tree_and_a_command_are_run_once_for_all_commits() -> None:
    hands = PaperHands()
    asked = checks(hands)
    first = await asked.on(Sha("base a b"), [TEST])
    again = await asked.on(Sha("base b a"), [TEST.model_copy(update={"criterion": "in other words"})])
    assert hands.ran == [("a b base", "test")]
    assert [run.criterion for run in (*first, *again)] == ["it works", "in other words"]
    await asked.on(Sha("base a"), [TEST])
    assert len(hands.ran) == 2


async def test_a_red_check_is_run_again_on_a_fresh_checkout_before_it_is_believed() -> None:
    hands = PaperHands(passes=lambda *_: False)
    [run] = await checks(hands).on(BASE, [TEST])
    assert (run.passed, run.flaky, run.fine) == (False, False, False)
    assert (len(hands.ran), hands.leases) == (2, 2)


async def test_a_check_that_passes_the_second_time_is_flaky_and_no_success() -> None:
    book = queued("a")
    [run] = await checks(PaperHands(passes=red_first), book).on(BASE, [TEST])
    assert (run.passed, run.flaky, run.fine) == (False, True, True)
    assert [note for note in book.state.warnings if "flaky: it works (test)" in note]


async def test_where_nothing_is_run_again_red_is_red() -> None:
    hands = PaperHands(passes=red_first)
    [run] = await checks(hands, reruns=0).on(BASE, [TEST])
    assert (run.passed, run.flaky, len(hands.ran)) == (False, False, 1)


async def test_on_a_base_red_is_what_is_expected_and_asked_once() -> None:
    hands = PaperHands(passes=lambda *_: False)
    asked = checks(hands)
    await asked.before_work([TEST], BASE)
    await asked.before_work([TEST], BASE)
    assert len(hands.ran) == 1
    await asked.on(BASE, [TEST])
    assert len(hands.ran) == 2, "seen red once is not a verdict"
    await asked.on(BASE, [TEST])
    assert len(hands.ran) == 2


async def test_what_was_red_on_a_merged_tree_is_seen_again_each_time_until_it_is_sure() -> None:
    hands = PaperHands(passes=lambda *_: False)
    asked = checks(hands)
    for times in (1, 2):
        await asked.merged(BASE, [], sure=False)
        assert len(hands.ran) == times
    [run] = await asked.merged(BASE, [], sure=True)
    assert (run.fine, len(hands.ran)) == (False, 3)
    await asked.merged(BASE, [], sure=False)
    assert len(hands.ran) == 3


async def test_a_resumed_run_knows_what_it_found_out() -> None:
    book = queued("a")
    known = f.CheckRun(criterion="it works", command="test", passed=True, tree="a base")
    started = f.AttemptVerified(at=2.0, subtask="a", number=1, checks=(known,))
    book.state = evolve(book.state, started)
    hands = PaperHands()
    [run] = await checks(hands, book).on(Sha("base a"), [TEST])
    assert (run, hands.ran) == (known, [])


async def test_a_resumed_run_knows_what_was_red_on_a_base_but_blames_no_subtask() -> None:
    book = queued("a")
    red = f.CheckRun(criterion="it works", command="test", passed=False, tree="base")
    book.state = evolve(book.state, f.WorkerStarted(at=2.0, subtask="a", number=1, before=(red,)))
    hands = PaperHands(passes=lambda *_: False)
    asked = checks(hands, book)
    assert await asked.before_work([TEST], BASE) == (red,)
    assert hands.ran == []
    await asked.on(BASE, [TEST])
    assert len(hands.ran) == 1


async def test_what_ran_out_of_time_is_asked_again() -> None:
    hands = PaperHands()
    asked = checks(hands, reruns=0)
    late = replace(hands, ran=[])
    late.ask = lambda *_: f.CheckRun(criterion="it works", command="test", passed=False, timed_out=True)  # type: ignore[method-assign]
    asked.node = ThisMachine(late.lease)
    await asked.on(BASE, [TEST])
    asked.node = ThisMachine(hands.lease)
    [run] = await asked.on(BASE, [TEST])
    assert run.passed


class Noting(ThisMachine):
    """Notes which checks finished work waits for."""

    async def check(self, order: ChecksOrder) -> tuple[f.CheckRun, ...]:
        noted.append((order.criteria[0].run or "", order.lands))
        return await super().check(order)


noted: list[tuple[str, bool]] = []


async def test_only_checks_that_finished_work_waits_for_come_before_others() -> None:
    hands = PaperHands(passes=lambda tree, *_: tree == "a base")
    asked = checks(hands)
    asked.node = Noting(hands.lease)
    noted.clear()
    await asked.before_work([TEST], BASE)
    await asked.on(Sha("base a"), [TEST])
    await asked.merged(Sha("base a b"), [TEST], sure=True)
    attempts, landing = {*noted[:2]}, {*noted[2:]}
    assert (attempts, landing) == ({("test", False)}, {("gate", True), ("test", True)})


async def test_the_gate_and_the_criteria_of_the_merged_share_no_checkout_and_none_runs_twice() -> None:
    hands = PaperHands()
    own = [TEST, TEST, GATE, *(Criterion(criterion=f"{n}", run=f"run {n}") for n in range(2 * IN_A_ROW))]
    runs = await checks(hands).merged(BASE, own, sure=False)
    commands = [run.command for run in runs]
    assert commands[:2] == ["gate", "test"]
    assert len(commands) == len(set(commands)) == 2 + 2 * IN_A_ROW
    assert hands.leases == len(commands)


async def test_without_any_check_nothing_is_checked_out() -> None:
    hands = PaperHands()
    bare = checks(hands)
    bare.rules = Gate()
    assert await bare.merged(BASE, [], sure=True) == ()
    assert hands.leases == 0


def reports(hands: PaperHands, *tests: str) -> PaperHands:
    """Whatever is run says that these tests passed."""
    ran_tests = f.RanTests(ran=frozenset(tests), passed=frozenset(tests)) if tests else None

    def ask(tree: Sha, criterion: Criterion) -> f.CheckRun:
        hands.ran.append((tree, criterion.run or ""))
        count = len(tests) if tests else None
        return f.CheckRun(
            criterion=criterion.criterion, command=criterion.run or "", passed=True, tests=count, ran_tests=ran_tests
        )

    hands.ask = ask  # type: ignore[method-assign]
    return hands


LINT = Criterion(criterion="nothing new", run="lint", tests="sarif:lint.sarif", fails_before=False)


def finds(findings: Callable[[str], frozenset[str] | None]) -> PaperHands:
    """Whatever is run finds this on a tree, and ends with an error."""
    hands = PaperHands()

    def ask(tree: Sha, criterion: Criterion) -> f.CheckRun:
        hands.ran.append((tree, criterion.run or ""))
        found = findings(tree)
        reported = f.RanTests(findings=found) if found is not None else None
        return f.CheckRun(criterion=criterion.criterion, command="lint", passed=False, exit_code=1, ran_tests=reported)

    hands.ask = ask  # type: ignore[method-assign]
    return hands


async def test_an_analyser_passes_with_what_it_finds_on_the_runs_base_and_nothing_else() -> None:
    hands = finds(lambda tree: frozenset({"old"}) | ({"new"} if "bad" in tree else set()))
    asked = checks(hands)
    [run] = await asked.on(Sha("base a"), [LINT])
    assert (run.passed, run.exit_code, run.ran_tests) == (True, 1, None)
    assert await asked.before_work([LINT], Sha("base a")) == (run.model_copy(update={"output": ""}),)
    [red] = await asked.on(Sha("base bad"), [LINT])
    assert not red.fine
    assert "1 new findings compared to the run's base:\nnew" in red.output
    assert hands.ran.count((BASE, "lint")) == 1, "the base is analysed once"


async def test_without_results_an_analyser_does_not_pass_here_or_on_the_base() -> None:
    silent = checks(finds(lambda _: None))
    assert "no readable results" in (await silent.on(Sha("base a"), [LINT]))[0].output
    blind = checks(finds(lambda tree: None if tree == "base" else frozenset()))
    [run] = await blind.on(Sha("base a"), [LINT])
    assert not run.fine
    assert "no readable results on the run's base" in run.output


async def test_the_base_is_not_analysed_by_a_node_that_could_hide_what_is_new() -> None:
    hands = finds(lambda _: frozenset())
    asked = checks(hands)
    asked.node = Noting(hands.lease)
    noted.clear()
    await asked.on(Sha("base a"), [LINT])
    assert noted == [("lint", False), ("lint", True)]


async def test_a_command_that_should_leave_results_in_files_owes_them_from_the_first_time() -> None:
    asked_for = TEST.model_copy(update={"tests": "junit:out.xml"})
    [run] = await checks(reports(PaperHands()), reruns=0).on(BASE, [asked_for])
    assert (run.passed, "no readable results found at junit:out.xml" in run.output) == (False, True)
    configured = checks(reports(PaperHands()), reruns=0)
    configured.rules = replace(configured.rules, results={"test": "junit:out.xml"})
    [filled] = configured.rules.resolved([TEST])
    assert filled.tests == "junit:out.xml"


PYTEST = Criterion(criterion="it works", run="python -m pytest")


async def test_a_success_of_pytest_without_its_report_does_not_count() -> None:
    [run] = await checks(reports(PaperHands()), reruns=0).on(BASE, [PYTEST])
    assert (run.passed, "did not report its tests" in run.output) == (False, True)
    asked = checks(reports(PaperHands()), reruns=0)
    asked.rules = replace(asked.rules, expected_tests=False)
    [run] = await asked.on(BASE, [PYTEST])
    assert run.passed


async def test_a_command_that_reported_once_owes_its_report_also_after_a_crash() -> None:
    asked = checks(PaperHands(), reruns=0)
    asked.node = ThisMachine(reports(PaperHands()).lease)
    assert (await asked.on(BASE, [TEST]))[0].passed, "it has never reported, so it owes nothing"
    asked.node = ThisMachine(reports(PaperHands(), "a").lease)
    [run] = await asked.on(Sha("base a"), [TEST])
    assert (run.passed, run.tests, run.ran_tests) == (True, 1, None)
    asked.node = ThisMachine(reports(PaperHands()).lease)
    assert not (await asked.on(Sha("base b"), [TEST]))[0].passed
    book = queued("a")
    book.state = evolve(book.state, f.WorkerStarted(at=2.0, subtask="a", number=1, before=(run,)))
    resumed = checks(reports(PaperHands()), book, reruns=0)
    assert not (await resumed.on(Sha("base b"), [TEST]))[0].passed


async def test_tests_that_ran_on_the_base_are_missed_on_a_commit() -> None:
    asked = checks(reports(PaperHands(), "t.py::t::a", "t.py::t::b"))
    await asked.before_work([PYTEST], BASE)
    asked.node = ThisMachine(reports(PaperHands(), "t.py::t::b").lease)
    await asked.on(Sha("base a"), [PYTEST])
    assert await asked.lost(Sha("base a"), BASE, [PYTEST], changed=(), touches=()) == {"it works": ("t.py::t::a",)}
    assert await asked.lost(Sha("base a"), BASE, [PYTEST], changed=("t.py",), touches=()) == {}


async def test_a_base_that_was_asked_in_an_earlier_life_is_asked_again_to_compare() -> None:
    hands = reports(PaperHands(), "t.py::t::a")
    asked = checks(hands)
    await asked.on(Sha("base a"), [PYTEST])
    assert await asked.lost(Sha("base a"), BASE, [PYTEST], changed=(), touches=()) == {}
    assert hands.ran == [("a base", PYTEST.run), ("base", PYTEST.run)]


class WithoutSetup(PaperHands):
    """The set-up fails on every commit that holds `broken`, as often as `times` says."""

    times: int = 1_000_000

    @asynccontextmanager
    async def lease(self, base: Sha) -> AsyncIterator[PaperLease]:
        async with super().lease(base) as lease:
            if "broken" in base and self.leases <= self.times:
                red = f.CheckRun(
                    criterion="the set-up", command="make deps", passed=False, exit_code=7, causes=("no x",)
                )
                failure = f.Failure(kind="configuration", summary="the setup command failed with exit code 7")
                raise SetupFailedError(failure, red)
            yield lease


async def test_a_set_up_that_a_commit_breaks_makes_its_checks_red_and_is_run_twice_for_all_of_them() -> None:
    hands = WithoutSetup()
    asked = checks(hands)
    runs = await asked.on(Sha("base broken"), [TEST, TEST.model_copy(update={"run": "other"})])
    assert [(run.command, run.fine, run.causes) for run in runs] == [
        ("test", False, ("no x",)),
        ("other", False, ("no x",)),
    ]
    assert "the setup command failed with exit code 7 on this commit" in runs[0].output
    assert (hands.leases, hands.ran) == (2, [])
    [gate] = await asked.merged(Sha("base broken"), [], sure=False)
    assert (gate.criterion, gate.fine) == ("the gate", False)


async def test_a_set_up_that_passes_the_second_time_makes_nothing_flaky() -> None:
    hands = WithoutSetup()
    hands.times = 1
    [run] = await checks(hands).on(Sha("base broken"), [TEST])
    assert (run.passed, run.flaky) == (True, False)


async def test_on_a_base_a_broken_set_up_does_not_stand_for_a_check_that_must_fail() -> None:
    with pytest.raises(SetupFailedError):
        await checks(WithoutSetup()).before_work([TEST], Sha("base broken"))


async def test_what_asks_for_labels_is_checked_where_they_are_and_the_rest_anywhere() -> None:
    book, asked_of = queued("ab"), list[ChecksOrder]()
    (gpu, plain) = book.state.plan.subtasks
    plan = book.state.plan.model_copy(update={"subtasks": (gpu.model_copy(update={"labels": ("gpu",)}), plain)})
    book.state = replace(book.state, plan=plan)
    hands = PaperHands()

    class Orders(ThisMachine):
        async def check(self, order: ChecksOrder) -> tuple[f.CheckRun, ...]:
            asked_of.append(order)
            return await ThisMachine.check(self, order)

    checked = checks(hands, book)
    checked.node = Orders(hands.lease)
    criteria = [check for spec in plan.subtasks for check in spec.acceptance]
    runs = await checked.merged(BASE, criteria, sure=False)
    assert [run.command for run in runs] == ["gate", *(check.run for check in criteria)]
    assert {(order.criteria[0].run, order.labels, order.lands) for order in asked_of} == {
        ("gate", frozenset(), True),
        (gpu.acceptance[0].run, frozenset({"gpu"}), True),
        (plain.acceptance[0].run, frozenset(), True),
    }


class Elsewhere(ThisMachine):
    """Checks that nothing lands by run on a node, which reports all of them green."""

    async def check(self, order: ChecksOrder) -> tuple[f.CheckRun, ...]:
        if order.lands:
            return await super().check(order)
        return tuple(
            f.CheckRun(criterion=each.criterion, command=each.run or "", passed=True, node="one")
            for each in order.criteria
        )


@pytest.mark.parametrize(("passes", "distrusted"), [(True, []), (False, ["one"])])
async def test_a_node_that_reported_green_what_is_red_here_is_not_believed_any_more(
    passes: bool, distrusted: list[str]
) -> None:
    hands, named = PaperHands(passes=lambda *_: passes), list[str]()
    asked = checks(hands)
    asked.node = Elsewhere(hands.lease)
    asked.trust = NodeTrust(queued("a"), Clock(), distrust=lambda node, _: named.append(node))
    reported = await asked.on(Sha("base a"), [TEST])
    await asked.doubt(Sha("base a"), reported, [TEST, GATE])
    assert named == distrusted
    before = await asked.before_work([TEST], BASE)
    assert isinstance(before, f.Failure) == passes, "a node alone stops no subtask"
    assert named == 2 * distrusted
    assert {command for _, command in hands.ran} == {"test"}
