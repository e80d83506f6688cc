"""The demo's script: its plan is consistent, its faults happen, and its run ends."""

from collections import Counter
from typing import Any

import pytest

from agents.simulated.behaviours import Fault, Http
from agents.simulated.planner import read_subtasks, revise
from agents.simulated.script import Script, parse_script
from examples.demo import scenario
from examples.demo.library import LARGE, SMALL, library
from fleet.core.base.ids import SubtaskId
from fleet.core.plans.parameters import read_plan
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import Revision, SubtaskStatuses, revise_plan

OUTCOMES = {"wrong": "check", "claim": "empty", "stray": "bounds", "too_complex": "too_complex", "ask": "ambiguous"}
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE])


def scripted(size: int) -> Script:
    return parse_script(scenario.script(library(size), size))


@SIZES
def test_the_whole_plan_is_consistent(size: int) -> None:
    plan = read_plan(scenario.plan(library(size)))
    assert isinstance(plan, Plan)
    assert len(plan.subtasks) == size
    assert sum(not subtask.depends_on for subtask in plan.subtasks) >= (12 if size == SMALL else 100)
    assert all(criterion.fails_before for subtask in plan.subtasks for criterion in subtask.acceptance)


@SIZES
def test_the_script_is_the_same_every_time(size: int) -> None:
    assert scenario.script(library(size), size) == scenario.script(library(size), size)


def test_the_first_revision_fits_into_one_answer() -> None:
    revision = scripted(LARGE).planner.steps[0].revision
    assert len(revision.model_dump_json(exclude_unset=True)) / 4 < 16_000


def test_a_share_of_the_large_demo_meets_faults() -> None:
    faulty = [worker for worker in scripted(LARGE).workers.values() if worker.attempts[0].do != "solve"]
    assert 0.1 < len(faulty) / LARGE < 0.25


class Rehearsal:
    """The demo without worktrees, checks and time: the planner's revisions on what the script's workers would do."""

    def __init__(self, size: int) -> None:
        self.script = scripted(size)
        self.plan = Plan(goal="Write textkit")
        self.seen: dict[SubtaskId, dict[str, Any]] = {}
        self.questions: list[dict[str, Any]] = []
        self.split: set[SubtaskId] = set()
        self.happened: Counter[str] = Counter()
        self.most_at_once = 0

    def rehearse(self) -> Revision:
        for _ in range(40):
            revision = self.revision()
            if revision.finished:
                return revision
            self.apply(revision)
            self.work()
        raise AssertionError("it does not end")

    def revision(self) -> Revision:
        state = {"subtasks": list(self.seen.values()), "questions": self.questions}
        return Revision.model_validate(revise(self.script.planner, read_subtasks(state)))

    def apply(self, revision: Revision) -> None:
        statuses = {id_: item["status"] for id_, item in self.seen.items()}
        known = SubtaskStatuses(
            open=frozenset(id_ for id_, status in statuses.items() if status != "merged"),
            failed=frozenset(id_ for id_, status in statuses.items() if status in {"failed", "blocked"}),
            split_or_dropped=frozenset(self.split),
        )
        plan = revise_plan(self.plan, revision, known)
        assert isinstance(plan, Plan), plan
        self.plan = plan
        for split in revision.split:
            self.split.add(split.id)
            del self.seen[split.id]
        for subtask in plan.subtasks:
            if subtask.id not in self.split:
                fresh = {"id": subtask.id, "title": subtask.title, "status": "waiting", "attempts": 0, "failures": []}
                self.seen.setdefault(subtask.id, fresh)
        for retry in revision.retry:
            self.seen[retry.id]["status"] = "waiting"
        for ask in revision.ask:
            self.happened["asked"] += 1
            answer = scenario.ANSWER
            self.questions.append({"id": "q1", "about": ask.about, "question": ask.question, "answer": answer})

    def work(self) -> None:
        merged = {id_ for id_, item in self.seen.items() if item["status"] == "merged"}
        needs = {subtask.id: subtask.depends_on for subtask in self.plan.subtasks}
        ready = [
            item for id_, item in self.seen.items() if item["status"] == "waiting" and merged.issuperset(needs[id_])
        ]
        self.most_at_once = max(self.most_at_once, len(ready))
        for item in ready:
            self.attempt(item)

    def attempt(self, item: dict[str, Any]) -> None:
        attempts = self.script.worker(item["id"]).attempts
        item["attempts"] += 1
        behaviour = attempts[min(item["attempts"], len(attempts)) - 1]
        self.happened[behaviour.do] += 1
        while isinstance(behaviour, Fault):
            if isinstance(behaviour, Http):
                return  # transient: it waits, and is tried again without the planner
            assert behaviour.then is not None
            behaviour = behaviour.then
        if kind := OUTCOMES.get(behaviour.do):
            item["status"] = "blocked" if behaviour.do == "ask" else "failed"
            item["failures"].append({"attempt": item["attempts"], "class": kind, "evidence": f"it {kind}"})
        else:
            item["status"] = "merged"


@SIZES
def test_everything_lands_in_the_end_and_every_remedy_is_needed(size: int) -> None:
    rehearsal = Rehearsal(size)
    end = rehearsal.rehearse()
    assert end.synthesis
    assert len(rehearsal.seen) == size + 1  # one was split in two
    assert rehearsal.split == {"render"}
    assert rehearsal.most_at_once >= (12 if size == SMALL else 100)
    for kind in ("wrong", "claim", "stray", "too_complex", "ask", "asked", "http", "break_stream", "malformed"):
        assert rehearsal.happened[kind] >= 1, kind
