"""The branch of a pull request: fetched, kept in the user's repository during a round, and moved forward.

All pushed commits were tested on top of the current head. If others pushed during a round, its commits land again on
top of theirs, like in `fleet merge`. fleet never force-pushes.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from fleet.app.fleet import Fleet
from fleet.core.base.ids import RunId, Sha, SubtaskId, result_branch
from fleet.errors import FleetError, UsageError
from fleet.features.forge.forge import NAMES, ForgePlace, Pull, place_of_remote, pull_reference
from fleet.features.forge.program import open_forge
from fleet.features.parts import load_part
from fleet.features.table import FEATURES, Feature
from fleet.read.base_view import MergeView
from fleet.runs.crash_points import reached
from fleet.runs.run_folder import FirstFact, RunFolder, runs_by_start
from worktrees.git.object_format import RUN, TASK, parse_trailers
from worktrees.git.program import text
from worktrees.store.store import Store
from worktrees.target.publish import Remote, push, remote_urls
from worktrees.target.target import Target

Work = Callable[[RunFolder], Awaitable[None]]
Take = Callable[[Fleet, RunFolder, Work, str, float], Awaitable[MergeView | str]]
"""Merges the result of a run into a branch: see `Feature.takes`."""


def find_take(features: Mapping[str, Feature] = FEATURES) -> Take:
    """Load the function that merges results into branches, from another feature."""
    for feature in features.values():
        if feature.takes:
            return cast("Take", load_part(feature.takes))
    raise FleetError("fleet tend requires fleet merge, which this installation does not include")


@dataclass(frozen=True, slots=True)
class PullBranch:
    """The head branch of one pull request."""

    target: Target
    store: Store
    remote: Remote
    name: str
    """The name on the remote."""
    run: RunId
    """The run whose result the pull request proposes."""
    number: int
    take: Take

    @property
    def local(self) -> str:
        """The name in the user's repository during a round."""
        return f"fleet/{self.run}-pr{self.number}"

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.local}"

    async def fetch(self) -> Sha | None:
        """Fetch the head from the remote, or None if the branch was deleted."""
        return await self.remote.fetch(self.name, f"refs/fleet/{self.run}/pulls/{self.number}")

    async def is_on(self, commit: Sha, head: Sha) -> bool:
        return await self.store.git.is_ancestor(commit, head)

    async def bring(self, head: Sha) -> None:
        """Set the branch in the user's repository to the head. The store keeps its previous commit."""
        current = await self.target.git.sha(self._ref)
        if current == head:
            return
        if current is not None and await self.store.git.sha(current) is not None:
            await self.store.git("update-ref", f"refs/fleet/{self.run}/overwritten/{current}", current)
        if (problem := await push(self.store.git, self.target, head, self._ref, current)) is not None:
            raise FleetError(f"can't set {self.local} to the head of the pull request: {problem.strip()}")
        reached("the head of a pull request is in the user's repository")

    async def put_on(
        self, fleet: Fleet, round_run: RunFolder, head: Sha, work: Work, dollars: float
    ) -> MergeView | str:
        """Apply and test the commits of a round on top of a head, or return why they do not fit."""
        await self.bring(head)
        return await self.take(fleet, round_run, work, self.local, dollars)

    async def push(self, commit: Sha) -> None:
        """Move the head of the pull request forward. Raises `RemoteMovedError` or `RemoteError`."""
        await self.remote.push(commit, self.name)

    async def remove_local(self) -> None:
        """Remove the branch from the user's repository."""
        if (current := await self.target.git.sha(self._ref)) is not None:
            await self.target.git.ask("update-ref", "-d", self._ref, current)

    async def landed(self, head: Sha, onto: Sha, runs: frozenset[RunId]) -> dict[SubtaskId, Sha]:
        """Return the last commit between `onto` and `head` of each subtask of these runs."""
        walk = ("log", "-z", "--reverse", "--no-show-signature", "--format=%H%n%B", f"{onto}..{head}")
        found: dict[SubtaskId, Sha] = {}
        for entry in text(await self.store.git(*walk)).split("\0"):
            commit, _, message = entry.strip("\n").partition("\n")
            trailers = parse_trailers(message)
            if trailers.get(RUN, "") in runs:
                found[SubtaskId(trailers.get(TASK, ""))] = Sha(commit)
        return found


# ---- opened ----------------------------------------------------------------------------------------------------------
# Finds the pull request that an argument refers to, and its run.
#
# fleet only tends pull requests that it opened: their branch is `fleet/RUN` in the same repository, and the run is on
# this machine.


BRANCHES = "fleet/"


@dataclass(frozen=True, slots=True)
class TendedPullRequest:
    """A pull request that fleet opened."""

    pull: Pull
    place: ForgePlace
    remote: str
    """The remote of the user's repository for that forge."""
    folder: RunFolder


async def find_opened(
    wanted: str | None, target: Target, state_dir: Path, environ: Mapping[str, str]
) -> TendedPullRequest:
    """Find a pull request by number, URL or run; without an argument, that of the latest run."""
    places = await _places(target)
    runs = [run for run in runs_by_start(state_dir) if run.is_of(target.git_dir)]
    here = next(iter(places.values()), None)
    reference = pull_reference(wanted, here) if wanted is not None else None
    if reference is None:
        pull, place = await _of_run(wanted, runs, places, environ)
    else:
        place = reference.place
        if place not in places.values():
            known = ", ".join(map(str, places.values())) or f"none on {NAMES}"
            raise UsageError(
                f"{place} is not a remote of this repository, which has: {known}",
                hint="select the repository with -C DIRECTORY",
            )
        pull = await open_forge(place, environ).pull(reference.number)
    folder = _run_of(pull, runs)
    if pull.is_cross_repository or folder is None:
        raise UsageError(
            f"{place.pull_text(pull.number)} does not belong to a run on this machine: its branch is "
            f"{pull.head_branch}",
            hint="open a pull request for a run with `fleet pr RUN`",
        )
    remote = next(name for name, each in places.items() if each == place)
    return TendedPullRequest(pull, place, remote, folder)


async def _of_run(
    wanted: str | None, runs: list[FirstFact], places: Mapping[str, ForgePlace], environ: Mapping[str, str]
) -> tuple[Pull, ForgePlace]:
    """Find the pull request of a run, or of the latest run with a pull request."""
    if not places:
        raise UsageError(f"no git remote points to {NAMES}", hint="add a remote with `git remote add origin URL`")
    names = [run.folder.run for run in runs]
    named = RunId(wanted.removeprefix(BRANCHES)) if wanted is not None else None
    if named is not None and named not in names:
        raise UsageError(
            f"{wanted!r} is neither a pull request nor a run of this repository",
            hint="pass the number or URL of a pull request, or a run from `fleet runs`",
        )
    for name in [named] if named is not None else reversed(names):
        for place in dict.fromkeys(places.values()):
            if pulls := await open_forge(place, environ).pulls_of(result_branch(name)):
                return next((pull for pull in pulls if pull.state == "open"), pulls[0]), place
    of_what = f"{wanted} has" if wanted is not None else "the runs of this repository have"
    raise UsageError(f"{of_what} no pull request", hint="open one with `fleet pr`")


def _run_of(pull: Pull, runs: list[FirstFact]) -> RunFolder | None:
    """Return the run with the longest name that prefixes the branch: a stack has a branch per area."""
    if not pull.head_branch.startswith(BRANCHES):
        return None
    branch = pull.head_branch.removeprefix(BRANCHES)
    found = [run.folder for run in runs if branch == run.folder.run or branch.startswith(f"{run.folder.run}-")]
    return max(found, key=lambda folder: len(folder.run), default=None)


async def _places(target: Target) -> dict[str, ForgePlace]:
    """Return the forge repositories of the git remotes, `origin` first."""
    urls = await remote_urls(target)
    ordered = sorted(urls, key=lambda name: name != "origin")
    return {name: place for name in ordered if (place := place_of_remote(urls[name])) is not None}
