"""Whom a run believes: the record of each node, without any check being run."""

import pytest

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun
from fleet.engine.checks import MOST_WRONG_REDS, NodeTrust
from tests.fleet.hands import Clock, queued

COMMIT = Sha("0123456789abcdef0123456789abcdef01234567")


def run(node: str = "", *, passed: bool, timed_out: bool = False) -> CheckRun:
    return CheckRun(criterion="it works", command="test", passed=passed, node=node, timed_out=timed_out)


@pytest.fixture
def distrusted() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def rested() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def trust(distrusted: list[tuple[str, str]], rested: list[tuple[str, str]]) -> NodeTrust:
    return NodeTrust(queued("a"), Clock(), lambda *what: distrusted.append(what), lambda *what: rested.append(what))


@pytest.mark.parametrize(
    ("found", "is_lie"),
    [
        (run(passed=False), True),
        (run(passed=True), False),
        (run(passed=False, timed_out=True), False),
        (run("two", passed=False), False),
    ],
)
async def test_green_that_is_red_here_is_a_lie_unless_time_ran_out_or_another_node_says_so(
    trust: NodeTrust, distrusted: list[tuple[str, str]], found: CheckRun, is_lie: bool
) -> None:
    await trust.compare(run("one", passed=True), found, COMMIT)
    lie = ("one", "it reported that `test` passes on 0123456789ab, but it fails on this machine")
    assert distrusted == ([lie] if is_lie else [])


@pytest.mark.parametrize("cleared_by", ["a success", "a confirmed failure"])
async def test_reds_that_pass_here_add_up_until_something_that_a_node_says_is_true(
    trust: NodeTrust, rested: list[tuple[str, str]], cleared_by: str
) -> None:
    word = run("one", passed=False)
    for _ in range(MOST_WRONG_REDS - 1):
        await trust.compare(word, run(passed=True), COMMIT)
    if cleared_by == "a success":
        trust.take(run("one", passed=True))
    else:
        await trust.compare(word, run(passed=False), COMMIT)
    for _ in range(MOST_WRONG_REDS - 1):
        await trust.compare(word, run(passed=False, timed_out=True), COMMIT)
        await trust.compare(word, run(passed=True), COMMIT)
    assert rested == []
    await trust.compare(word, run(passed=True), COMMIT)
    assert [node for node, _ in rested] == ["one"]


async def test_what_this_machine_runs_is_no_word(trust: NodeTrust) -> None:
    assert [trust.is_word(run(node, passed=True)) for node in ("", "one")] == [False, True]
