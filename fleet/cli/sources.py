"""Which plan a person means on the command line: a file, a name of the library, or a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.common import root_of, state_dir
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.app import Fleet
    from fleet.epic import Brought
    from fleet.folders import RunFolder
    from fleet.library import Library

Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the plan; may be repeated.")
]
RUN = "fleet/"
"""Before the name of a run, where a plan is called the same: as its branch is."""


def settings(sets: list[str] | None) -> dict[str, str]:
    """What was set, as it was typed."""
    found: dict[str, str] = {}
    for given in sets or ():
        name, equals, value = given.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {given}: write it as NAME=VALUE")
        if name in found:
            raise UsageError(f"--set {name}: is there twice")
        found[name] = value
    return found


def shelves(repo: Path) -> Library:
    from fleet.library import library

    return library(root_of(repo))


def brought(fleet: Fleet, given: str, sets: list[str] | None, repo: Path) -> Brought:
    """The plan in a file or of the library, with its values and its rollback plan."""
    from fleet.epic import bring

    library = shelves(repo)
    return bring(library.plan(given), fleet.known(), settings(sets), library.folders)


def meant(given: str, repo: Path) -> Path | RunFolder:
    """The file or the run. Raises `UsageError` where it may be both, or is neither."""
    from fleet.epic import PLAN_FILES
    from fleet.folders import all_runs, find_run
    from fleet.library import looks_like_a_file

    if given.startswith(RUN) and not given.endswith(PLAN_FILES):
        return find_run(state_dir(), given)
    library = shelves(repo)
    if looks_like_a_file(given):
        return Path(given)
    plan = library.find(given)
    run = next((run for run in all_runs(state_dir()) if run.run == given), None)
    if plan is not None and run is not None:
        raise UsageError(f"{given} is a plan and a run; write {plan}, or {RUN}{given}")
    found = plan or run or (Path(given) if Path(given).is_file() else None)
    if found is None:
        raise UsageError(f"{library.unknown(given)}, nor a run; see `fleet plans list` and `fleet runs`")
    return found
