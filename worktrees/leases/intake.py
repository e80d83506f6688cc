"""Takes in what a node made. A node may be broken or lie: its pack is hostile input until the very end.

The pack is read by our own code first (sizes, counts, checksum), then unpacked into a quarantine beside the store,
where its one commit must have the order's base as its only parent and nothing may be missing. Only its trees and files
move into the store. The commit that lands is made here, with our own author and trailers, by the rules that a change
found on this machine passes, too.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.ids import Sha
from fleet.core.state.facts import Failure
from fleet.ports.worktrees import Change, Signature
from worktrees.base.fs import as_text, printable
from worktrees.base.settings import WorktreeSettings
from worktrees.changes.scan import is_git_name, may_hold_secret
from worktrees.git.object_format import parse_commit
from worktrees.git.pack_format import PackError, PackLimits, check_pack
from worktrees.git.program import text
from worktrees.git.trees.diff import Diff, DiffEntry
from worktrees.leases.commit import commit_tree
from worktrees.store.store import Store

PREFIX = "new-intake-"  # removed with what else a killed process left unfinished in a store
LONGEST_COMMIT = 64 * 1024
LINK = "120000"
MAX_DEPTH = 100


class IntakeError(Exception):
    """A node sent what it may not send. The message says what; nothing of it is in the store."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a node says it made for an order."""

    pack: bytes
    commit: Sha
    base: Sha


async def take_in(
    store: Store,
    arrival: Arrival,
    *,
    signature: Signature,
    touches: Sequence[str],
    settings: WorktreeSettings,
    limits: PackLimits | None = None,
) -> Change | Failure:
    """Commit and pin what a node made, unless it breaks a rule. Raises `IntakeError` where it can't be honest work."""
    tree = await _unpacked(store, arrival, limits or PackLimits())
    diff = await store.repository.diff(arrival.base, tree)
    suspicious = await _check_files(store, diff, settings)
    commit = partial(commit_tree, store, arrival.base, tree, signature=signature, touches=touches, settings=settings)
    return await commit(suspicious=suspicious)


async def _unpacked(store: Store, arrival: Arrival, limits: PackLimits) -> Sha:
    """The tree of the commit that a pack holds, with all that it needs in the store."""
    try:
        await to_thread.run_sync(partial(check_pack, arrival.pack, limits, digits=len(arrival.base)))
    except PackError as error:
        raise IntakeError(str(error)) from error
    with TemporaryDirectory(prefix=PREFIX, dir=store.home) as folder:
        quarantine = Path(folder)
        env = {
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(store.git_dir / "objects"),
        }
        unpacked = await store.git.ask("unpack-objects", "-q", "--strict", data=arrival.pack, env=env)
        if unpacked.exit_code != 0:
            raise IntakeError(f"git does not take the pack: {_last_line(unpacked.stderr)}")
        tree = await _tree_of_one_commit(store, arrival, env)
        listed = ("rev-list", "--objects", "--no-object-names", arrival.commit, "--not", arrival.base)
        reachable = await store.git.ask(*listed, env=env)
        if reachable.exit_code != 0:
            raise IntakeError(f"objects are missing: {_last_line(reachable.stderr)}")
        ids = [id_ for id_ in text(reachable.stdout).split() if id_ != arrival.commit]
        await to_thread.run_sync(_move, quarantine, store.git_dir / "objects", ids)
        return tree


async def _tree_of_one_commit(store: Store, arrival: Arrival, env: dict[str, str]) -> Sha:
    answer = await store.git.ask("cat-file", "commit", arrival.commit, env=env, cap=LONGEST_COMMIT)
    if answer.exit_code != 0 or answer.cut:
        raise IntakeError(f"there is no commit {arrival.commit[:12]} in it, or it is too long")
    try:
        commit = parse_commit(answer.stdout)
    except ValueError as error:
        raise IntakeError(f"commit {arrival.commit[:12]} can't be read") from error
    if commit.parents != (arrival.base,):
        named = " and ".join(each[:12] for each in commit.parents) or "nothing"
        raise IntakeError(f"its commit is based on {named} instead of {arrival.base[:12]}")
    return commit.tree


def _move(quarantine: Path, objects: Path, ids: Sequence[Sha]) -> None:
    """Move objects into the store. Files and trees are found by content, so one that is there already is the same."""
    for id_ in ids:
        source, goal = quarantine / id_[:2] / id_[2:], objects / id_[:2] / id_[2:]
        if source.exists() and not goal.exists():
            goal.parent.mkdir(exist_ok=True)
            source.rename(goal)


async def _check_files(store: Store, diff: Diff, settings: WorktreeSettings) -> bool:
    """Whether any file may hold a secret. Raises `IntakeError` for what no worktree of ours would have let by."""
    if len(diff.entries) > settings.max_files:
        raise IntakeError(f"it changes {len(diff.entries)} paths; at most {settings.max_files} are taken")
    for path in diff.present:
        parts = PurePosixPath(path).parts
        is_odd = not path.isprintable() or len(parts) > MAX_DEPTH
        if is_odd or as_text(path) != path or any(map(is_git_name, parts)):
            raise IntakeError(f"it has a path that no change may have: {printable(path)}")
    return await store.repository.run(partial(_check_contents, store, diff.files, settings.max_file_bytes))


def _check_contents(store: Store, entries: Sequence[DiffEntry], most: int) -> bool:
    suspicious, problem = False, ""
    contents = store.repository.objects.blobs([entry.id for entry in entries])
    for entry, content in zip(entries, contents, strict=True):  # to its end: it holds git's one conversation
        if len(content) > most:
            problem = f"{printable(entry.path)} has {len(content)} bytes; at most {most} are committed"
        elif entry.mode == LINK and _may_lead_out(entry.path, os.fsdecode(content)):
            problem = f"{printable(entry.path)} is a link that may leave the repository"
        suspicious = suspicious or may_hold_secret(content)
    if problem:
        raise IntakeError(problem)
    return suspicious


def _may_lead_out(path: str, target: str) -> bool:
    """Whether a link could leave the repository, whatever the links on its way are."""
    parts = PurePosixPath(target).parts
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or ".." in parts[ups:] or ups > path.count("/")


def _last_line(output: bytes) -> str:
    return printable(text(output).strip().rpartition("\n")[2])[:300] or "it says nothing"
