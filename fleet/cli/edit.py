"""Plans that a person edits: in an editor that is opened on a copy, checked when it comes back, and only then used."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from difflib import unified_diff
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType
from typing import TypeVar

import typer

from dashboards.safe import safe, safe_block
from dashboards.words import noticed_lines
from fleet.app import Fleet
from fleet.cli.act import ask
from fleet.cli.common import configuration, show
from fleet.core.amend import amendment
from fleet.core.diff import plan_diff
from fleet.core.evolve import evolve
from fleet.core.facts import PlanRevised
from fleet.core.lint import grade_plan
from fleet.core.parameters import declared, examples
from fleet.core.plan import Plan
from fleet.core.requests import accept
from fleet.core.standing import gone
from fleet.core.state import RunState
from fleet.core.validate import Known
from fleet.environment import current, user
from fleet.epic import dump_plan, load_plan, read_data
from fleet.errors import UsageError
from fleet.folders import RunFolder
from fleet.library import replace_text
from fleet.toml import read_text

Read = TypeVar("Read")

_UNSET: Mapping[str, str] = MappingProxyType({})


def has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def revision_for(state: RunState, path: Path, given: Mapping[str, str] = _UNSET) -> PlanRevised | None:
    """What leads from the run's plan to the one in a file; None where they are the same. Raises `UsageError`."""
    plan = load_plan(path, Fleet(configuration(Path(state.repository)), current()).known().beside(state.plan), given)
    plan = plan if plan.goal else plan.model_copy(update={"goal": state.plan.goal})
    revision = amendment(state.plan, plan, why=f"edited by {user()}", gone=gone(state))
    if isinstance(revision, str):
        raise UsageError(revision)
    if not revision.changes_plan:
        return None
    request = PlanRevised(at=time.time(), call=None, by=user(), revision=revision)
    if (problem := accept(state, request)) is not None:
        raise UsageError(problem)
    return request


def edited(state: RunState) -> PlanRevised | None:
    """The same, of a file that the person edits now."""
    return _in_editor(dump_plan(state.plan, toml=True), "plan.toml", lambda path: revision_for(state, path))


def edit_run(folder: RunFolder) -> None:
    """Let a person edit the plan of a run, and hand in what comes of it."""
    state = folder.asked()
    if state.ended:
        name = folder.run
        raise UsageError(f"{name} has ended; keep its plan with `fleet plans save {name} NAME`, and edit that")
    request = edited(state)
    if request is None:
        typer.echo("the plan is as it was")
        return
    after = evolve(state, request).plan
    show(safe(line, limit=300) for line in plan_diff(state.plan, after))
    show(noticed_lines(grade_plan(after, gone=gone(state)).all))
    ask(folder, request, f"version {after.version} of the plan is handed in; fleet approve {folder.run} lets it begin")


def edit_file(path: Path, given: Mapping[str, str]) -> None:
    """Let a person edit a plan file. It is written when it holds together, and not before."""
    path = path.resolve()  # a link that a person edits goes on being one
    before = read_text(path)

    def read(copy: Path) -> str:
        read_template(copy, given)
        return read_text(copy)

    after = _in_editor(before, path.name, read)
    if after is None:
        typer.echo(f"{path} is as it was")
        return
    changes = unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
    typer.echo(safe_block("\n".join(changes)))
    try:
        replace_text(path, after)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    typer.echo(f"wrote {path}")


def read_template(path: Path, given: Mapping[str, str]) -> Plan:
    """The plan in a file that may have parameters; what has to be set and is not has a stand-in.

    Which workers and checks there are depends on where it will run, so that is not asked.
    """
    parameters = declared(read_data(path))
    stand_ins = {} if isinstance(parameters, tuple) else examples(parameters)
    used = {name: value for name, value in stand_ins.items() if name not in given}
    try:
        return load_plan(path, Known(), {**stand_ins, **given})
    except UsageError as error:
        if not used:
            raise
        shown = ", ".join(f"{name}={value}" for name, value in used.items())
        raise UsageError(f"{error}\n(looked at with {shown}; --set says with what else)") from error


def _in_editor(text: str, name: str, check: Callable[[Path], Read]) -> Read | None:
    """What `check` makes of `text` once a person has edited it; None where nothing was changed."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    folder = Path(mkdtemp(prefix="fleet-plan-"))
    path = folder / name
    path.write_text(text, encoding="utf-8")
    made = False
    try:
        found = _until_it_holds(command, path, text, check)
        made = True
        return found
    finally:
        if made or _is_text(path, text):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            typer.echo(f"what you wrote is kept in {path}", err=True)


def _is_text(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


def _until_it_holds(command: list[str], path: Path, text: str, check: Callable[[Path], Read]) -> Read | None:
    while True:
        _open(command, path)
        try:
            return None if read_text(path) == text else check(path)
        except UsageError as error:
            if not has_terminal():
                raise
            typer.echo(str(error).replace(str(path), path.name), err=True)
            if not typer.confirm("Edit it again?", default=True):
                raise UsageError("nothing was changed") from None


def _open(command: list[str], path: Path) -> None:
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}; EDITOR names your editor") from error
    if code:
        raise UsageError(f"{command[0]} ended with exit code {code}; the plan is as it was")
