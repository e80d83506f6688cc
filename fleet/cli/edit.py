"""A plan that a person edits, as the request it becomes: read from a file, or from an editor that was opened on it."""

import os
import shlex
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.app import Fleet
from fleet.cli.common import configuration
from fleet.core.amend import amendment
from fleet.core.facts import PlanRevised
from fleet.core.plan import Plan
from fleet.core.state import RunState
from fleet.environment import current, user
from fleet.epic import dump_plan, load_plan
from fleet.errors import UsageError


def revision_for(state: RunState, path: Path) -> PlanRevised | None:
    """What leads from the run's plan to the one in a file; None where they are the same."""
    known = Fleet(configuration(Path(state.repository)), current()).known()
    return _request(state, load_plan(path, known))


def edited(state: RunState) -> PlanRevised | None:
    """The same, of a file that the person edits now."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with TemporaryDirectory(prefix="fleet-plan-") as folder:
        path = Path(folder) / "plan.toml"
        path.write_text(dump_plan(state.plan, toml=True), encoding="utf-8")
        try:
            code = subprocess.run([*command, str(path)], check=False).returncode
        except OSError as error:
            raise UsageError(f"{command[0]}: {error.strerror}; EDITOR names your editor") from error
        if code:
            raise UsageError(f"{command[0]} ended with exit code {code}; the plan is as it was")
        return revision_for(state, path)


def _request(state: RunState, plan: Plan) -> PlanRevised | None:
    gone = [id_ for id_, subtask in state.subtasks.items() if subtask.parts or subtask.dropped is not None]
    plan = plan if plan.goal else plan.model_copy(update={"goal": state.plan.goal})
    revision = amendment(state.plan, plan, why=f"edited by {user()}", gone=gone)
    if isinstance(revision, str):
        raise UsageError(revision)
    if not revision.changes_plan:
        return None
    return PlanRevised(at=time.time(), call=None, by=user(), revision=revision)
