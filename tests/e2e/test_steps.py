"""Steps that are programs: done without a commit where nothing asks for a change."""

import json
from pathlib import Path

from tests.e2e.stage import Stage
from tests.fleet.core.pretend import subtask_of

NO_SERVICE = "http://127.0.0.1:9"
CONFIG = '[workers.step]\nkind = "command"\ncommand = "true"\n[checks.named]\nfine = "true"\n'


def test_a_program_may_leave_nothing_unless_a_check_wants_to_see_a_difference(stage: Stage, repository: Path) -> None:
    config, plan = stage.room / "fleet.toml", stage.room / "plan.json"
    config.write_text(CONFIG, encoding="utf-8")
    wanted = {"criterion": "it is there", "run": "test -f there"}
    step = {"goal": "g", "worker": "step"}
    steps = [
        {"id": "notify", "title": "Notify", "acceptance": [{"criterion": "fine", "fails_before": False}], **step},
        {"id": "made", "title": "Make", "acceptance": [wanted], "failure_action": "skip", **step},
    ]
    plan.write_text(json.dumps({"goal": "steps", "subtasks": steps}), encoding="utf-8")
    asked = ("run", "--plan", str(plan), "--name", "r", "--config", str(config), "--base-url", NO_SERVICE)
    stage.fleet(*asked, at=repository).ended(1).says("no files changed")
    state = stage.look("r")
    assert state is not None
    assert subtask_of(state, "notify").unchanged
    assert [check.passed for check in subtask_of(state, "notify").attempts[-1].checks] == [True]
    failure = subtask_of(state, "made").attempts[-1].failure
    assert failure is not None
    assert failure.kind == "empty"
    assert (state.tip, state.published) == (state.base, None)
    assert stage.fleet("show", "notify", "--run", "r").ended(0).says("done, no files changed")
