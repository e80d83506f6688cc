"""Which pull request is meant, and which run it is of: the one whose branch it has.

The fleet tends what it opened: a pull request of the same repository whose branch is `fleet/RUN` of a run that is here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.core.base.ids import result_branch
from fleet.errors import UsageError
from fleet.forge.forge import Forge, Pull
from fleet.forge.open import open_forge
from fleet.forge.place import Place, place_of_remote, pull_reference
from fleet.runs.run_folder import FirstFact, RunFolder, runs_by_start
from worktrees.target.publish import remote_urls
from worktrees.target.target import Target

BRANCHES = "fleet/"


@dataclass(frozen=True, slots=True)
class Opened:
    """A pull request that the fleet opened."""

    pull: Pull
    place: Place
    remote: str
    """The remote of the user's repository that leads there."""
    folder: RunFolder


async def find_opened(wanted: str | None, target: Target, state_dir: Path, environ: Mapping[str, str]) -> Opened:
    """The pull request that an argument names: its number, its address, a run, or nothing for the latest run."""
    places = await _places(target)
    runs = [run for run in runs_by_start(state_dir) if run.is_of(target.git_dir)]
    here = next(iter(places.values()), None)
    reference = pull_reference(wanted, here) if wanted is not None else None
    if reference is None:
        pull, place = await _of_run(wanted, runs, places, environ)
    else:
        place = reference.place
        if place not in places.values():
            known = ", ".join(map(str, places.values())) or "none on a forge"
            raise UsageError(f"{place} is not the repository here", hint=f"its remotes: {known}; name it with -C")
        pull = await _forge(place, environ).pull(reference.number)
    folder = _run_of(pull, runs)
    if pull.is_cross_repository or folder is None:
        raise UsageError(
            f"{place.pull_text(pull.number)} is not of a run that is here: its branch is {pull.head_branch}",
            hint="`fleet pr RUN` opens one for a run",
        )
    remote = next(name for name, each in places.items() if each == place)
    return Opened(pull, place, remote, folder)


async def _of_run(
    wanted: str | None, runs: list[FirstFact], places: Mapping[str, Place], environ: Mapping[str, str]
) -> tuple[Pull, Place]:
    """The pull request of a run, or of the latest run that has one."""
    if not places:
        raise UsageError("no remote of this repository is on GitHub or GitLab", hint="git remote add origin URL")
    names = [run.folder.run for run in runs]
    if wanted is not None and wanted.removeprefix(BRANCHES) not in names:
        raise UsageError(f"{wanted!r} is no pull request and no run of this repository", hint="give its number or URL")
    for name in [wanted.removeprefix(BRANCHES)] if wanted is not None else reversed(names):
        for place in dict.fromkeys(places.values()):
            if pulls := await _forge(place, environ).pulls_of(result_branch(name)):
                return next((pull for pull in pulls if pull.state == "open"), pulls[0]), place
    of_what = f"{wanted} has" if wanted is not None else "the runs of this repository have"
    raise UsageError(f"{of_what} no pull request", hint="`fleet pr` opens one")


def _run_of(pull: Pull, runs: list[FirstFact]) -> RunFolder | None:
    """The run with the longest name that the branch begins with: a stack has a branch for each area."""
    if not pull.head_branch.startswith(BRANCHES):
        return None
    branch = pull.head_branch.removeprefix(BRANCHES)
    found = [run.folder for run in runs if branch == run.folder.run or branch.startswith(f"{run.folder.run}-")]
    return max(found, key=lambda folder: len(folder.run), default=None)


async def _places(target: Target) -> dict[str, Place]:
    """The repositories on forges that the remotes lead to; `origin` first."""
    urls = await remote_urls(target)
    ordered = sorted(urls, key=lambda name: name != "origin")
    return {name: place for name in ordered if (place := place_of_remote(urls[name])) is not None}


def _forge(place: Place, environ: Mapping[str, str]) -> Forge:
    return open_forge(place, environ)
