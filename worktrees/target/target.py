"""Inspects the user's repository before a run: whether it is usable, the base commit, and warnings for people.

Only reads, and never with the configuration of that repository. Problems become errors with a hint, and unusual states
become warnings.
"""

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fleet.core.base.ids import Sha, did_you_mean
from fleet.errors import UsageError
from worktrees.base.fs import printable
from worktrees.git import reader
from worktrees.git.isolated_git_dir import IsolatedGitDir, make_stand_in
from worktrees.git.object_format import (
    ATTRIBUTES,
)
from worktrees.git.program import Git, fields, find_repository, text

SHORT = 7
OWNED_BY_OTHERS = "detected dubious ownership"
NO_REPOSITORY = "not a git repository"
NAME_ONE = "use --repo to name a git repository"
MODULES = ".gitmodules"
LARGEST_RULES = 1024 * 1024  # bytes to read of a rules file


@dataclass(frozen=True, slots=True)
class Target:
    """The user's repository, and the base commit of a run."""

    root: Path
    git_dir: Path
    """The folder of its objects and refs. For a linked worktree, that of the main repository."""
    checkout: Git
    """Git in the given checkout, if there is one, with its HEAD and index."""
    stand_in: IsolatedGitDir
    base: Sha
    base_name: str
    bare: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def git(self) -> Git:
        """Git in the repository, for any of its checkouts."""
        return Git(self.stand_in.path, stand_in=self.stand_in)

    @property
    def main_root(self) -> Path:
        """The repository's first checkout, as far as git can find it, not that of a linked worktree."""
        if self.checkout.git_dir == self.git_dir:
            return self.root
        return self.git_dir.parent if self.git_dir.name == ".git" else self.git_dir


@dataclass(frozen=True, slots=True)
class _Place:
    root: Path
    git: Git
    stand_in: IsolatedGitDir
    bare: bool
    shallow: bool


async def inspect(path: Path, base: str | None = None) -> Target:
    """Inspect the repository around `path`, at `base` or at HEAD. Raises `UsageError` with a hint."""
    place = await _find(path)
    sha, name = await _resolve_base(place, base)
    start = f"{'HEAD' if base is None and not place.bare else name} {sha[:SHORT]}"
    warnings = await _warnings(place, sha, start)
    common_dir = place.stand_in.common_dir
    return Target(place.root, common_dir, place.git, place.stand_in, sha, name, place.bare, warnings)


async def locate(path: Path) -> Git:
    """Return git in the repository around `path`. Raises `UsageError`."""
    return (await _find(path)).git


def _folder(path: Path) -> Path:
    if not path.exists():
        raise UsageError(f"{path} does not exist", hint=NAME_ONE)
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder", hint=NAME_ONE)
    return path.resolve()


async def _find(path: Path) -> _Place:
    folder = _folder(path)
    query = ("--is-bare-repository", "--is-shallow-repository", "--absolute-git-dir", "--git-common-dir")
    answer = await find_repository(folder, *query)
    if answer.exit_code != 0:
        raise _unusable(path, folder, text(answer.stderr))
    is_bare, is_shallow, own_dir, common_dir = answer.stdout.decode("utf-8", "surrogateescape").split("\n")[:4]
    root, bare = Path(own_dir), is_bare == "true"
    if not bare:
        top = await find_repository(folder, "--show-toplevel")
        if top.exit_code != 0:  # inside `.git` itself
            raise UsageError(
                f"{path} is inside a .git folder", hint=f"use --repo {shlex.quote(str(_above_git(folder)))}"
            )
        root = Path(top.stdout.decode("utf-8", "surrogateescape").removesuffix("\n"))
        if not folder.is_relative_to(root):
            raise UsageError(
                f"the worktree of {path} is {root} (core.worktree)", hint=f"use --repo {shlex.quote(str(root))}"
            )
    stand_in = await make_stand_in(Path(common_dir), bare=bare)
    git = Git(Path(own_dir), None if bare else root, stand_in)
    return _Place(root, git, stand_in, bare=bare, shallow=is_shallow == "true")


def _above_git(folder: Path) -> Path:
    """Return the folder that holds the `.git` folder above or at `folder`."""
    return next((each.parent for each in (folder, *folder.parents) if each.name == ".git"), folder.parent)


def _unusable(path: Path, folder: Path, message: str) -> UsageError:
    """Return the error for a folder that is not a repository, or that git refuses to read."""
    if OWNED_BY_OTHERS in message:
        trust = f"git config --global --add safe.directory {shlex.quote(str(folder))}"
        return UsageError(
            f"{path} belongs to another user, so git refuses to read it", hint=f"if you trust that user: {trust}"
        )
    if NO_REPOSITORY in message:
        make = "git init && git add -A && git commit"
        return UsageError(f"{path} is not a git repository", hint=f"use --repo, or create one: {make}")
    reason = printable((message.strip().splitlines() or ["git printed no error"])[-1].removeprefix("fatal: "))
    return UsageError(f"{path}: git can't read this repository: {reason}")


async def _resolve_base(place: _Place, wanted: str | None) -> tuple[Sha, str]:
    if wanted is not None:
        is_name = bool(wanted) and "\0" not in wanted and not wanted.startswith("-")
        sha = await place.git.sha(wanted) if is_name else None
        if sha is None:
            near = did_you_mean(wanted, await reader.read(place.git, reader.branches_and_tags))
            raise UsageError(f"no commit, branch or tag {wanted!r} in {place.root}{near}")
        return sha, wanted
    sha = await place.git.sha("HEAD")
    if sha is None:
        raise UsageError(f"no commits in {place.root} yet", hint="git add -A && git commit -m start")
    return sha, await reader.read(place.git, reader.branch_of_head) or "HEAD (detached)"


async def _warnings(place: _Place, sha: Sha, start: str) -> tuple[str, ...]:
    warnings: list[str] = []
    if place.bare:
        warnings.append(f"{place.root} is a bare repository, so the run starts from {start}")
    elif count := await _count_uncommitted(place):
        files = "1 file" if count == 1 else f"{count} files"
        warnings.append(f"starts from {start}, without the uncommitted changes in {files}")
    if place.shallow:
        warnings.append("the repository is a shallow clone. Workers and the planner see only part of its history")
    question = partial(reader.files_at, commit=sha, paths=(MODULES, ATTRIBUTES), most=LARGEST_RULES)
    rules = await reader.read(place.git, question)
    if MODULES in rules:
        warnings.append("fleet does not fetch submodules. Their folders are empty in worktrees")
    if b"filter=lfs" in rules.get(ATTRIBUTES, b""):
        warnings.append("files in Git LFS appear as pointers, without their contents")
    return tuple(warnings)


async def _count_uncommitted(place: _Place) -> int:
    answer = await place.git.ask("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all")
    return len(fields(answer.stdout)) if answer.exit_code == 0 else 0
