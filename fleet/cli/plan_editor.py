"""Edits plans in the user's editor, on a copy that is checked before the plan changes."""

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType
from typing import Annotated, TypeVar

import typer

from dashboards.text.plan_review import note_lines
from dashboards.text.safe import safe, safe_block
from fleet.app.input_files import (
    PLAN_FILES,
    GivenPlan,
    PlanLibrary,
    dump_plan,
    load_plan,
    looks_like_a_file,
    read_data,
    read_given_plan,
    replace_text,
)
from fleet.app.wiring import Wiring
from fleet.cli.common import (
    check_output,
    check_request,
    configuration_of,
    has_terminal,
    make_request,
    repository_of,
    run_names,
    show,
    show_json,
    state_dir,
)
from fleet.config.environment import current, editor, user
from fleet.config.toml import read_text
from fleet.core.facts.facts import PlanGraded, PlanRevised
from fleet.core.history.evolve import evolve
from fleet.core.plans.lint import grade_plan
from fleet.core.plans.parameters import example_settings, read_parameters
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import PlanContext, revision_between
from fleet.errors import FleetError, UsageError
from fleet.read.plan_views import EditedPlanView, plan_diff
from fleet.read.run import RunSnapshot, just_after
from fleet.runs.run_folder import RunFolder, all_runs, find_run, root_of

Checked = TypeVar("Checked")

_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def revision_from(run: RunSnapshot, path: Path, settings: Mapping[str, str] = _NO_SETTINGS) -> PlanRevised | None:
    """Return the revision from the run's plan to the plan in a file; None if they are equal. Raises `UsageError`."""
    wiring = Wiring(configuration_of(run.state, secrets=False).config, current())
    plan = load_plan(path, wiring.known.beside(run.plan), settings)
    plan = plan if plan.goal else plan.model_copy(update={"goal": run.plan.goal})
    revision = revision_between(run.plan, plan, why=f"edited by {user()}", without=run.split_or_dropped)
    if isinstance(revision, str):
        raise UsageError(revision)
    if not revision.changes_plan:
        return None
    request = PlanRevised(at=time.time(), call=None, by=user(), revision=revision)
    check_request(run.state, request)
    return request


def edit_plan(run: RunSnapshot) -> PlanRevised | None:
    """Return the revision made in the editor; None if nothing changed."""
    return _edit(dump_plan(run.plan, toml=True), "plan.toml", lambda path: revision_from(run, path))


def revised_run(run: RunSnapshot, revised: PlanRevised) -> RunSnapshot:
    """Return the run with its plan revised, and the linter's warnings about it."""
    after = just_after(evolve(run.state, revised))
    warnings = grade_plan(after.plan, without=after.split_or_dropped).all
    return just_after(evolve(after.state, PlanGraded(at=after.last_at, version=after.plan.version, warnings=warnings)))


def edit_run(folder: RunFolder, *, as_json: bool) -> None:
    """Edit the plan of a run and submit it as a new version."""
    run = folder.run
    if not has_terminal():
        raise UsageError(
            "an editor requires a terminal",
            hint=f"run `fleet plans show fleet/{run} --json > plan.json`, change the file, "
            f"then run `fleet approve {run} --plan plan.json`",
        )
    before = just_after(folder.requested_state())
    if before.figures.is_over:
        raise UsageError(f"{run} has ended", hint=f"save its plan with `fleet plans save {run} NAME`, then edit that")
    request = edit_plan(before)
    if request is None:
        _say_unchanged("the plan", run, as_json=as_json)
        return
    revised = revised_run(before, request)
    after = revised.plan
    if not as_json:
        show(safe(line, limit=300) for line in plan_diff(before.plan, after))
        show(note_lines(revised.status.plan_warnings))
    message = f"submitted version {after.version} of the plan. `fleet approve {run}` starts it."
    make_request(folder, request, message, as_json=as_json)


def _say_unchanged(what: str, of: str, *, as_json: bool) -> None:
    if as_json:
        show_json(EditedPlanView(of, changed=False))
    else:
        typer.echo(f"{what} is unchanged")


def edit_file(path: Path, settings: Mapping[str, str], *, as_json: bool) -> None:
    """Edit a plan file. It is written only if it is valid."""
    if not has_terminal():
        raise UsageError("an editor requires a terminal", hint=f"change {path}, then run `fleet plans check {path}`")
    path = path.resolve()  # a link stays a link
    before = read_text(path)

    def check(copy: Path) -> str:
        read_template(copy, settings)
        return read_text(copy)

    after = _edit(before, path.name, check)
    if after is None:
        _say_unchanged(str(path), str(path), as_json=as_json)
        return
    changes = unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
    if not as_json:
        typer.echo(safe_block("\n".join(changes)))
    try:
        replace_text(path, after)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    if as_json:
        show_json(EditedPlanView(str(path), changed=True))
    else:
        typer.echo(f"wrote {path}")


def read_template(path: Path, settings: Mapping[str, str]) -> Plan:
    """The plan in a file that may have parameters. Unset required parameters get example values.

    Does not check the names of workers and checks, which depend on the configuration of the run.
    """
    parameters = read_parameters(read_data(path))
    examples = {} if isinstance(parameters, tuple) else example_settings(parameters)
    examples = {name: value for name, value in examples.items() if name not in settings}
    try:
        return load_plan(path, PlanContext(), {**examples, **settings})
    except UsageError as error:
        if not examples:
            raise
        values = ", ".join(f"{name}={value}" for name, value in examples.items())
        raise UsageError(
            error.message, hint=error.hint or f"checked with {values}: use --set to change these values"
        ) from error


def _edit(text: str, name: str, check: Callable[[Path], Checked]) -> Checked | None:
    """Return the result of `check` on the edited text; None if it is unchanged. Keeps the file of a failed edit."""
    command = editor()
    folder = Path(mkdtemp(prefix="fleet-plan-"))
    path = folder / name
    path.write_text(text, encoding="utf-8")
    is_done = False
    try:
        result = _edit_until_valid(command, path, text, check)
        is_done = True
        return result
    finally:
        if is_done or _holds(path, text):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            typer.echo(f"your edit is saved in {path}", err=True)


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


def _edit_until_valid(command: list[str], path: Path, text: str, check: Callable[[Path], Checked]) -> Checked | None:
    while True:
        try:
            code = subprocess.run([*command, str(path)], check=False).returncode
        except OSError as error:
            raise UsageError(f"{command[0]}: {error.strerror}", hint="set $EDITOR to your editor") from error
        if code:
            raise UsageError(f"{command[0]} exited with code {code}: the plan is unchanged")
        try:
            return None if read_text(path) == text else check(path)
        except UsageError as error:
            if not has_terminal():
                raise
            typer.echo(error.text.replace(str(path), path.name), err=True)
            if not typer.confirm("Edit it again?", default=True):
                raise UsageError("the plan is unchanged") from None


# ---- plan sources ----------------------------------------------------------------------------------------------------
# Finds the plan for an argument: a file, a plan in the library, or a run.


Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter of the plan. Can be used multiple times."),
]
RUN_PREFIX = "fleet/"
"""Marks the name of a run if a plan has the same name. It is also the prefix of the run's branch."""


def parse_settings(sets: list[str] | None) -> dict[str, str]:
    """The values of `--set`, still as text."""
    settings: dict[str, str] = {}
    for setting in sets or ():
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"invalid value for --set: {setting!r}", hint="use --set NAME=VALUE")
        if name in settings:
            raise UsageError(f"--set {name} is given twice", hint="remove one of them")
        settings[name] = value
    return settings


def plan_library(repo: Path) -> PlanLibrary:
    return PlanLibrary(root_of(repo))


def plan_names(context: typer.Context) -> list[str]:
    """For completion: the plans in the library, and the runs."""
    names = list[str]()
    with suppress(FleetError, OSError):
        names += plan_library(repository_of(context)).names
    return list(dict.fromkeys([*names, *run_names(context)]))


def load_plan_argument(known: PlanContext, name: str, sets: list[str] | None, repo: Path) -> GivenPlan:
    """The plan in a file or in the library, with its values and its rollback plan."""
    plans = plan_library(repo)
    return read_given_plan(plans.plan(name), known, parse_settings(sets), plans.folders)


def find_plan(name: str, repo: Path) -> Path | RunFolder:
    """The plan file or the run. Raises `UsageError` if it could be both, or is neither."""
    if name.startswith(RUN_PREFIX) and not name.endswith(PLAN_FILES):
        return find_run(state_dir(), name)
    if looks_like_a_file(name):
        return Path(name)
    plans = plan_library(repo)
    plan = plans.find(name)
    run = next((run for run in all_runs(state_dir()) if run.run == name), None)
    if plan is not None and run is not None:
        raise UsageError(f"{name} is both a plan and a run", hint=f"use {plan} or {RUN_PREFIX}{name}")
    source = plan or run or (Path(name) if Path(name).is_file() else None)
    if source is None:
        raise UsageError(
            f"no plan and no run is called {name!r}",
            hint=plans.near(name) or "run `fleet plans list` or `fleet runs` to list them",
        )
    return source


def check_plan_output(output: Path, *, force: bool) -> None:
    """Raise `UsageError` if the plan can't be written there. Call it before the planner."""
    if output.suffix not in {".json", ".toml"}:
        raise UsageError(f"unknown plan format: {output}", hint="use a file name that ends in .json or .toml")
    check_output(output, force=force)


PlanFile = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="PLAN",
        help="Run this plan: a file, or a name in the library.",
        autocompletion=plan_names,
    ),
]
