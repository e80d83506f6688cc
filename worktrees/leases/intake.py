"""Takes in what a node made. A node may be broken or lie: its pack is hostile input until the very end.

The pack is read by our own code first (sizes, counts, checksum), then unpacked into a quarantine beside the store,
where its one commit must have the order's base as its only parent. Git unpacks nothing that names an object which is
neither in the pack nor in the store. Only the commit's trees and files move into the store. The commit that lands is
made here, with our own author and trailers, by the rules that a change found on this machine passes, too.
"""

import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.ids import Sha
from fleet.core.state.facts import Failure
from fleet.ports.worktrees import Change, Signature
from fleet.runs.crash_points import reached
from worktrees.base.fs import as_text, printable
from worktrees.base.settings import WorktreeSettings
from worktrees.git.diff import Diff, DiffEntry
from worktrees.git.object_format import PackError, PackLimits, check_pack, is_folder, parse_commit, parse_tree
from worktrees.git.program import text
from worktrees.leases.commit import commit_tree
from worktrees.leases.scan import is_git_name, may_hold_secret
from worktrees.store.store import Store, new_prefix

LONGEST_COMMIT = 64 * 1024
LINK = "120000"
MAX_DEPTH = 100
HEX = re.compile(r"[0-9a-f]+")


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
    if len(arrival.commit) != len(arrival.base) or HEX.fullmatch(arrival.commit) is None:
        raise IntakeError("what it names as its commit is not the id of one")
    try:
        await to_thread.run_sync(partial(check_pack, arrival.pack, limits, digits=len(arrival.base)))
    except PackError as error:
        raise IntakeError(str(error)) from error
    with TemporaryDirectory(prefix=new_prefix("intake-"), dir=store.home) as folder:
        quarantine = Path(folder)
        env = {
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(store.git_dir / "objects"),
        }
        unpacked = await store.git.ask("unpack-objects", "-q", "--strict", data=arrival.pack, env=env)
        if unpacked.exit_code != 0:
            raise IntakeError(f"git does not take the pack: {_last_line(unpacked.stderr)}")
        tree = await _tree_of_one_commit(store, quarantine, arrival, env)
        await to_thread.run_sync(_settle, quarantine, store.git_dir / "objects", tree)
        return tree


def _settle(quarantine: Path, objects: Path, tree: Sha) -> None:
    """Move what a tree needs into the store. That nothing is missing git has checked."""
    _move(quarantine, objects, _new_objects(quarantine, tree, len(tree) // 2))


def _new_objects(quarantine: Path, tree: Sha, id_size: int) -> list[Sha]:
    """A tree and all below it, as far as they arrived; the rest was in the store before.

    What a tree names comes in front of it: a kill leaves no tree in the store that lacks something.
    """
    files, folders, seen = list[Sha](), list[Sha](), set[Sha]()
    pending = [(tree, False)]
    while pending:
        id_, is_walked = pending.pop()
        if is_walked:
            folders.append(id_)
        elif id_ not in seen and (content := _loose(quarantine, id_, "tree")) is not None:
            pending.append((id_, True))
            for node in parse_tree(content, id_size).values():
                if is_folder(node):
                    pending.append((node[1].hex(), False))
                else:
                    files.append(node[1].hex())
        seen.add(id_)
    return [*dict.fromkeys(files), *folders]


def _loose(folder: Path, id_: Sha, kind: str, longest: int = PackLimits().bytes) -> bytes | None:
    """The content of an object that git wrote here, if it is one of this kind."""
    try:
        packed = (folder / id_[:2] / id_[2:]).read_bytes()
    except FileNotFoundError:
        return None
    header, _, content = zlib.decompressobj().decompress(packed, longest).partition(b"\0")
    size = header.removeprefix(f"{kind} ".encode())
    return content if size.isdigit() and int(size) == len(content) else None


async def _tree_of_one_commit(store: Store, quarantine: Path, arrival: Arrival, env: dict[str, str]) -> Sha:
    """The tree of the commit. Git does not unpack a commit that the store has, from an engine that was killed."""
    content = await to_thread.run_sync(_loose, quarantine, arrival.commit, "commit", LONGEST_COMMIT)
    if content is None:
        answer = await store.git.ask("cat-file", "commit", arrival.commit, env=env, cap=LONGEST_COMMIT)
        if answer.exit_code != 0 or answer.cut:
            raise IntakeError(f"there is no commit {arrival.commit[:12]} in it, or it is too long")
        content = answer.stdout
    try:
        commit = parse_commit(content)
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
            reached("an object of a node is in the store, and the others may not be")


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
