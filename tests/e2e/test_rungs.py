"""Rungs as people see them: a failure leads to the next rung without the planner, and the next run knows."""

from pathlib import Path

from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, landed, script, solve, subtask

RUNGS = "claude-haiku-5-5 low, claude-sonnet-5-5 medium, claude-opus-5-5 high"


def test_a_failure_climbs_to_the_next_rung_and_later_runs_choose_by_what_was_seen(
    stage: Stage, repository: Path, model: Serve
) -> None:
    wrong = {"do": "wrong", "files": {"hard.txt": "no\n"}}
    worker = {"do": "until", "model": "*sonnet*", "meanwhile": wrong, "then": solve("hard")}
    url = model(script(subtask("hard"), subtask("easy"), workers={"hard": [worker]}))
    climbing = stage.with_(FLEET_WORKERS_CODER_RUNGS=RUNGS)
    run = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
    climbing.fleet(*run).ended(0).says("hard retries with the next model or effort level", "LANDED")
    assert sorted(landed(repository, "r")) == ["easy", "hard"]

    with Journal(climbing.folder("r").journal) as journal:
        facts = [fact for _, fact in journal.facts()]
    assert [fact.why for fact in facts if isinstance(fact, f.PlannerCalled)].count("failures") == 0
    assert [fact.runs for fact in facts if isinstance(fact, f.EvidenceRead)] == [0]
    attempts = climbing.fleet("show", "hard", "--run", "r", "--json").ended(0).json["attempts"]
    assert [(each["model"], each["effort"], each["choice"]["why"]) for each in attempts] == [
        ("claude-haiku-5-5", "low", "order"),
        ("claude-sonnet-5-5", "medium", "climbed"),
    ]
    climbing.fleet("show", "hard", "--run", "r").ended(0).says(
        "coder (claude-haiku-5-5 low)", "rung      1 of 3; first in order, because too few attempts were observed"
    )

    asked = ("explain-policy", "--repo", str(repository))
    with_service = climbing.with_(FLEET_MODELS_BASE_URL=url)
    rows = with_service.fleet(*asked, "--json").ended(0).json["rungs"]
    medium = [row for row in rows if row["size"] == "medium"]
    seen = {rung["model"]: (rung["tried"], rung["landed"]) for rung in medium}
    assert seen == {"claude-haiku-5-5": (2, 1), "claude-sonnet-5-5": (1, 1), "claude-opus-5-5": (0, 0)}
    with_service.fleet(*asked).ended(0).says("claude-haiku-5-5 low", "1 of 2", "untried", "PER LANDED SUBTASK")
    unseen = climbing.fleet(*asked, "--json").ended(0).json["rungs"]
    assert {row["tried"] for row in unseen} == {0}, "what the simulated model does says nothing of a real one"
