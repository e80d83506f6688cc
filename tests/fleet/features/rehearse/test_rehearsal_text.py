"""A rehearsal for real on one screen: what is counted, what is marked, and nothing that a terminal acts on."""

from dataclasses import replace

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.features.rehearse.rehearsal_text import past_tasks_lines
from fleet.features.rehearse.rehearsal_view import LeftOutCommit, PastTasksView, RedoneCommit, WorkerScore
from tests.dashboards.hostile import HOSTILE, problems

DONE = RedoneCommit(
    subtask=SubtaskId("001-aaaaaaaa"),
    commit=Sha("a" * 40),
    title="Add a door",
    tests=1,
    tried=True,
    landed=True,
    passed=True,
    attempts=1,
    worker="coder",
    model="m",
    dollars=0.5,
    seconds=9.0,
    why="",
    result=Sha("b" * 40),
)
RED = replace(DONE, title="Paint it", passed=False, why="1 test failed\nmore", attempts=2)
OPEN = replace(DONE, title="Sell it", tried=False, landed=False, passed=None, attempts=0, dollars=0.0)
SCORE = WorkerScore("coder", "m", 2, 2, 2, 1, 3, 1.0, 18.0)
VIEW = PastTasksView(
    run=RunId("real"),
    rehearsal=True,
    for_real=True,
    simulated=False,
    repository="/srv/doors",
    base=Sha("0" * 40),
    head=Sha("f" * 40),
    gate="make check",
    redone=(DONE, RED, OPEN),
    left_out=(LeftOutCommit(Sha("c" * 40), "Break it", "the gate fails on it"),),
    tried=2,
    landed=2,
    with_tests=2,
    passed=1,
    by_gate=0,
    by_gate_landed=0,
    workers=(SCORE,),
    attempts=3,
    dollars=1.0,
    planner_dollars=0.25,
    dollars_each=0.5,
    budget_dollars=4.0,
    seconds=20.0,
    ending="budget",
    ending_why="the budget is used up",
)


def shown(view: PastTasksView) -> str:
    return "\n".join(past_tasks_lines(view))


def test_the_verdict_counts_what_was_tried_and_the_table_shows_every_commit() -> None:
    text = shown(VIEW)
    assert "2 of 2 commits landed, 1 of 2 pass the original tests, at $0.5000 each" in text
    assert "1 not tried, 1 left out" in text
    assert "ended      budget: the budget is used up" in text
    rows = [line.split()[1:3] for line in text.splitlines() if line.startswith("a" * 12)]
    assert rows == [["yes", "pass"], ["yes", "FAIL"], ["-", "-"]]
    assert "1 test failed" in text
    assert "SIMULATED" not in text


def test_a_simulated_model_is_named_and_a_price_that_is_not_known_is_not_zero() -> None:
    text = shown(replace(VIEW, simulated=True, dollars=None, dollars_each=None))
    assert "SIMULATED" in text
    assert "unknown of $4.00" in text
    assert "each" not in text.splitlines()[1]


def test_commits_that_only_the_gate_judges_are_counted_apart() -> None:
    text = shown(replace(VIEW, redone=(replace(DONE, tests=0, passed=None),), with_tests=0, by_gate=1))
    assert "gate only  0 of 1 landed" in text
    assert "no test" in text
    assert "pass the tests" not in text


def test_nothing_from_history_or_a_worker_reaches_the_terminal() -> None:
    hostile = replace(DONE, title=HOSTILE, why=HOSTILE, passed=False)
    view = replace(
        VIEW,
        repository=HOSTILE,
        redone=(hostile,),
        left_out=(LeftOutCommit(Sha("c" * 40), HOSTILE, HOSTILE),),
        workers=(replace(SCORE, worker=HOSTILE, model=HOSTILE),),
        ending_why=HOSTILE,
    )
    assert problems(past_tasks_lines(view)) == []
