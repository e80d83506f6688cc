"""Looks at the user's repository before a run: whether it can be worked on, from where, and what a person should know.

Only reads. What is wrong becomes a message with a way out; what is merely odd becomes a warning.
"""

from dataclasses import dataclass
from pathlib import Path

from fleet.core.ids import Sha
from fleet.core.nearest import did_you_mean
from fleet.ports import UsageError
from worktrees import reader
from worktrees.git import Git, ask_git, fields, text

SHORT = 7


@dataclass(frozen=True, slots=True)
class Target:
    """The user's repository, and the commit of it that a run starts from."""

    root: Path
    git_dir: Path
    """Where its objects and refs are; for a linked worktree that is the main repository's."""
    base: Sha
    base_name: str
    shallow: bool = False
    bare: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    root: Path
    own_dir: Path
    common_dir: Path
    bare: bool
    shallow: bool

    @property
    def git(self) -> Git:
        return Git(self.own_dir, None if self.bare else self.root)


async def inspect(path: Path, base: str | None = None) -> Target:
    """The repository that `path` lies in, at `base` or at HEAD. Raises `UsageError` with what to do instead."""
    place = await _find(path)
    sha, name = await _base(place, base)
    return Target(
        root=place.root,
        git_dir=place.common_dir,
        base=sha,
        base_name=name,
        shallow=place.shallow,
        bare=place.bare,
        warnings=await _warnings(place, sha, name, from_head=base is None),
    )


async def locate(path: Path) -> Git:
    """Git in the repository that `path` lies in, whatever it holds. Raises `UsageError`."""
    return Git((await _find(path)).own_dir)


async def _find(path: Path) -> _Place:
    at = str(_folder(path))
    asked = ("--is-bare-repository", "--is-shallow-repository", "--absolute-git-dir", "--git-common-dir")
    answer = await ask_git("-C", at, "rev-parse", "--path-format=absolute", *asked)
    if answer.exit_code != 0:
        raise UsageError(
            f"{path} is not a git repository; choose one with --repo, or make one: git init && git add -A && git commit"
        )
    bare, shallow, own, common = answer.stdout.decode("utf-8", "surrogateescape").split("\n")[:4]
    if bare == "true":
        return _Place(Path(own), Path(own), Path(common), bare=True, shallow=shallow == "true")
    top = await ask_git("-C", at, "rev-parse", "--show-toplevel")
    if top.exit_code != 0:  # inside `.git` itself
        raise UsageError(f"{path} is inside a .git folder; go to the folder above it, or give that with --repo")
    root = Path(top.stdout.decode("utf-8", "surrogateescape").removesuffix("\n"))
    return _Place(root, Path(own), Path(common), bare=False, shallow=shallow == "true")


def _folder(path: Path) -> Path:
    if not path.exists():
        raise UsageError(f"{path} does not exist; give a git repository with --repo")
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder; give the folder of a git repository with --repo")
    return path.resolve()


async def _base(place: _Place, wanted: str | None) -> tuple[Sha, str]:
    if wanted is not None:
        sha = await place.git.sha(wanted) if _sane(wanted) else None
        if sha is None:
            near = did_you_mean(wanted, await reader.branches(place.root))
            raise UsageError(f"{place.root} has no commit, branch or tag {wanted!r}{near}")
        return sha, wanted
    sha = await place.git.sha("HEAD")
    if sha is None:
        raise UsageError(f"{place.root} has no commits yet; make a first one: git add -A && git commit -m start")
    branch = await place.git.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    return sha, text(branch.stdout).strip() or "HEAD (detached)"


def _sane(revision: str) -> bool:
    return bool(revision) and "\0" not in revision and not revision.startswith("-")


async def _warnings(place: _Place, sha: Sha, name: str, *, from_head: bool) -> tuple[str, ...]:
    found: list[str] = []
    if place.bare:
        found.append(f"{place.root} is a bare repository; the run starts from {name} {sha[:SHORT]}")
    else:
        count = await _uncommitted(place)
        start = f"HEAD {sha[:SHORT]}" if from_head else f"{name} {sha[:SHORT]}"
        if count:
            files = "1 file" if count == 1 else f"{count} files"
            found.append(f"runs on {start}; your uncommitted changes to {files} are not part of it")
    if place.shallow:
        found.append("the repository is a shallow clone; workers and the planner see only part of its history")
    files_seen = await reader.peek(place.root, sha, (".gitmodules", ".gitattributes"))
    if ".gitmodules" in files_seen:
        found.append("submodules are left empty; workers see nothing in their folders")
    if b"filter=lfs" in files_seen.get(".gitattributes", b""):
        found.append("files kept by Git LFS are seen as pointers, not as their contents")
    return tuple(found)


async def _uncommitted(place: _Place) -> int:
    answer = await place.git.ask("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all")
    return len(fields(answer.stdout)) if answer.exit_code == 0 else 0
