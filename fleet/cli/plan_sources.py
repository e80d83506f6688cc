"""Finds the plan that an argument names: a file, a plan of the library, or a run."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli.common import state_dir
from fleet.cli.completion import repository_of, run_names
from fleet.core.plans.validate import Known
from fleet.errors import FleetError, UsageError
from fleet.plans.input_files import PLAN_FILES, GivenPlan, read_given_plan
from fleet.plans.library import Library, looks_like_a_file
from fleet.runs.repository import root_of
from fleet.runs.run_folder import RunFolder, all_runs, find_run

Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the plan; may be repeated.")
]
RUN_PREFIX = "fleet/"
"""Marks the name of a run where a plan has the same name. It is also the prefix of the run's branch."""


def parse_settings(sets: list[str] | None) -> dict[str, str]:
    """The values of `--set`, still as text."""
    settings: dict[str, str] = {}
    for setting in sets or ():
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {setting}: write it as NAME=VALUE")
        if name in settings:
            raise UsageError(f"--set {name}: given twice")
        settings[name] = value
    return settings


def plan_library(repo: Path) -> Library:
    return Library(root_of(repo))


def plan_names(context: typer.Context) -> list[str]:
    """For completion: the plans of the library, and the runs, which stand for theirs."""
    names = list[str]()
    with suppress(FleetError, OSError):
        names += plan_library(repository_of(context)).names
    return list(dict.fromkeys([*names, *run_names(context)]))


def load_plan_argument(known: Known, name: str, sets: list[str] | None, repo: Path) -> GivenPlan:
    """The plan in a file or of the library, with its values and its rollback plan."""
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
        raise UsageError(f"{name} is a plan and a run", hint=f"write {plan}, or {RUN_PREFIX}{name}")
    source = plan or run or (Path(name) if Path(name).is_file() else None)
    if source is None:
        raise UsageError(f"{plans.unknown(name)}, nor a run", hint="see `fleet plans list` and `fleet runs`")
    return source
