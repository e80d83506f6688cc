"""Turn a worker's change into a commit, or reject it. Called when all processes in the box have ended.

First the tree is scanned without git. Then the changed paths are listed and scanned. Only then they become objects. A
commit is pinned by a ref before it is reported.
"""

import os
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.ids import Sha, attempt_ref, kept_ref
from fleet.core.base.paths import folders_above, matches, outside
from fleet.core.facts.facts import Failure
from fleet.ports.worktrees import Change, Signature
from fleet.runs.crash_points import reached
from worktrees.base.fs import as_text, printable
from worktrees.base.settings import WorktreeSettings
from worktrees.git.diff import Diff, DiffEntry
from worktrees.git.object_format import (
    ATTRIBUTES,
    EXECUTABLE,
    FILE,
    LINK,
    PackError,
    PackLimits,
    author_of,
    check_pack,
    committer_of,
    compose,
    is_folder,
    node_id,
    parse_commit,
    parse_tree,
)
from worktrees.git.objects import Objects
from worktrees.git.program import Git, fields, text
from worktrees.git.repository import Repository
from worktrees.git.write_tree import PathChange, changes_in, source_content
from worktrees.leases.union_view import (
    BaseFiles,
    OverlayChange,
    TreeView,
    ViewFinding,
    is_git_name,
    may_hold_secret,
    read_changes,
    scan_changed,
    scan_tree,
    secrets_in,
    select,
)
from worktrees.sandbox.overlay_mount import Overlay
from worktrees.store.store import Store, new_prefix

# ---- large files -----------------------------------------------------------------------------------------------------
# Finds files that belong in Git LFS but that a worker wrote in full: the repository would store their bytes.
#
# In a worktree such files are pointers, three lines of text. A commit must also have pointers, and only Git LFS makes
# them.


RULE = b"filter=lfs"
POINTER = b"version https://git-lfs.github.com/spec/"
LONGEST_POINTER = 1024


async def raw_large_files(repository: Repository, base: Sha, tree: Sha, diff: Diff) -> list[str]:
    """Return the new or changed files that Git LFS should store and that are not pointers, unless they never were."""
    asked = await repository.run(partial(_may_be_large, repository.objects, tree, diff.files))
    if not asked:
        return []
    with TemporaryDirectory(prefix="fleet-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        await repository.git("read-tree", tree, env=env)
        names = "".join(f"{entry.path}\0" for entry in asked).encode("utf-8", "surrogateescape")
        answers = fields(await repository.git("check-attr", "--cached", "-z", "--stdin", "filter", env=env, data=names))
    large = {path for path, _, value in zip(*[iter(answers)] * 3, strict=True) if value == "lfs"}
    return await repository.run(partial(_raw, repository.objects, base, [e for e in asked if e.path in large]))


def _may_be_large(objects: Objects, tree: Sha, files: Sequence[DiffEntry]) -> list[DiffEntry]:
    """Return the files below a `.gitattributes` that names the filter, without starting git."""
    has_rule: dict[str, bool] = {}

    def rules(folder: str) -> bool:
        if folder not in has_rule:
            content = _content(objects, tree, f"{folder}{ATTRIBUTES}")
            has_rule[folder] = content is not None and RULE in content
        return has_rule[folder]

    def is_below(path: str) -> bool:
        return rules("") or any(rules(f"{folder}/") for folder in folders_above(path))

    return [entry for entry in files if entry.mode != LINK and is_below(entry.path)]


def _raw(objects: Objects, base: Sha, files: Sequence[DiffEntry]) -> list[str]:
    raw = []
    for entry in files:
        before = _content(objects, objects.tree_of(base), entry.path)
        was_raw = before is not None and not _is_pointer(before)
        if not was_raw and not _is_pointer(objects.blob(entry.id)):
            raw.append(entry.path)
    return raw


def _content(objects: Objects, tree: Sha, path: str) -> bytes | None:
    """Return a file of a tree, or None if it does not exist."""
    *folders, name = os.fsencode(path).split(b"/")
    entries = objects.tree(tree)
    for folder in folders:
        node = entries.get(folder)
        if not is_folder(node):
            return None
        entries = objects.tree_at(node)
    node = entries.get(name)
    if node is None or node[0].decode() not in {FILE, EXECUTABLE}:
        return None
    return objects.blob(node_id(node))


def _is_pointer(content: bytes) -> bool:
    return content.startswith(POINTER) and len(content) <= LONGEST_POINTER


# ---- commit ----------------------------------------------------------------------------------------------------------


PATCH_CAP = 16 * 1024 * 1024
LISTED = 50  # paths listed in a failure; the rest are counted
STATUS = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")


async def find_slot_changes(
    git: Git, tree: Path, settings: WorktreeSettings, *, max_files: int
) -> tuple[PathChange, ...] | Failure:
    """Scan a registered worktree, and list the paths that `git add --all` would add: changed, removed and new files."""
    findings = await to_thread.run_sync(lambda: scan_tree(tree, max_files=max_files))
    if findings:
        return _unfit_tree(findings)
    paths = tuple(entry[3:] for entry in (await git(*STATUS)).split(b"\0") if entry)
    names, view = tuple(map(os.fsdecode, paths)), TreeView((tree,))
    findings = await to_thread.run_sync(lambda: scan_changed(view, names, max_file_bytes=settings.max_file_bytes))
    return _unfit_change(findings) if findings else await to_thread.run_sync(changes_in, tree, paths)


async def find_overlay_changes(
    git: Git, overlay: Overlay, below: BaseFiles, settings: WorktreeSettings
) -> tuple[PathChange, ...] | Failure:
    """Scan a tenant's changes in an overlay, and list the paths that `git add --all` would add."""
    upper = overlay.upper
    findings, changes = await to_thread.run_sync(_scan_upper, upper, settings.box.max_files)
    if findings:
        return _unfit_tree(findings)
    selection = await select(git, below, changes, upper)
    view, names = TreeView((upper, *below.view.layers)), [change.path for change in selection.present]
    findings = await to_thread.run_sync(lambda: scan_changed(view, names, max_file_bytes=settings.max_file_bytes))
    if findings:
        return _unfit_change(findings)
    removed = [PathChange(os.fsencode(path)) for path in selection.removed]
    present = [PathChange(os.fsencode(change.path), change.mode, upper / change.path) for change in selection.present]
    return (*removed, *present)


async def commit_changes(
    store: Store,
    base: Sha,
    changes: Sequence[PathChange],
    *,
    signature: Signature,
    touches: Sequence[str],
    settings: WorktreeSettings,
) -> Change | Failure:
    """Commit and pin scanned changes, unless they break a rule."""
    tree = await store.repository.write_tree(base, changes)
    suspicious = await to_thread.run_sync(_may_hold_secrets, changes)
    commit = partial(commit_tree, store, base, tree, signature=signature, touches=touches, settings=settings)
    return await commit(suspicious=suspicious)


async def commit_tree(
    store: Store,
    base: Sha,
    tree: Sha,
    *,
    signature: Signature,
    touches: Sequence[str],
    settings: WorktreeSettings,
    suspicious: bool,
) -> Change | Failure:
    """Commit and pin a tree, unless it breaks a rule. `suspicious`: whether to search it for secrets."""
    repository = store.repository
    diff = await repository.diff(base, tree)
    failure = (
        _check_bounds(
            diff, touches, settings.checks.protected, own=await _own_conftests(repository, base, diff, touches)
        )
        or await _check_names(repository, base, tree, diff)
        or await _check_large_files(repository, base, tree, diff)
        or (await _check_secrets(repository, base, tree) if suspicious else None)
    )
    if failure is not None:
        return failure
    author = author_of(signature, settings.git.name, settings.git.email)
    committer = committer_of(settings.git.name, settings.git.email)
    message = compose(signature)
    commit = await repository.commit_tree(tree, base, author=author, committer=committer, message=message)
    ref = kept_ref if signature.unfinished else attempt_ref
    await repository.refs.pin(ref(signature.run, signature.subtask, signature.attempt), commit)
    return Change(commit=commit, paths=tuple(map(as_text, diff.paths)))


def _scan_upper(upper: Path, max_files: int) -> tuple[tuple[ViewFinding, ...], tuple[OverlayChange, ...]]:
    findings = scan_tree(upper, max_files=max_files, whiteouts=True)
    return findings, () if findings else read_changes(upper)


async def _own_conftests(repository: Repository, base: Sha, diff: Diff, touches: Sequence[str]) -> frozenset[str]:
    """The `conftest.py` in new folders that `touches` covers: they affect only tests that the change adds."""
    found = set[str]()
    for path in diff.present:
        folder, _, name = path.rpartition("/")
        is_owned = name == "conftest.py" and folder and matches(path, touches)
        if is_owned and not await repository.git("ls-tree", "-z", base, "--", folder):
            found.add(path)
    return frozenset(found)


def _check_bounds(
    diff: Diff, touches: Sequence[str], protected: Sequence[str], *, own: frozenset[str]
) -> Failure | None:
    if not diff.entries:
        return Failure(kind="empty", summary="no changes")
    if diff.gitlinks:
        return _refuse("adds or moves a submodule", map(printable, sorted(diff.gitlinks)))
    beyond = outside(diff.paths, touches) if touches else ()
    if beyond:
        allowed = f"allowed: {', '.join(touches)}"
        return _refuse("changes files outside the subtask's `touches`", (*map(printable, beyond), allowed))
    held = [path for path in diff.paths if matches(path, protected) and path not in touches and path not in own]
    if held:
        why = "these files are protected. Only a subtask that names the file in `touches` may change it"
        return _refuse("changes protected files", (*map(printable, held), why))
    return None


async def _check_names(repository: Repository, base: Sha, tree: Sha, diff: Diff) -> Failure | None:
    pairs = await repository.colliding_names(base, tree, diff.present)
    if not pairs:
        return None
    lines = (f"{printable(path)} collides with {printable(other)}" for path, other in pairs)
    return _refuse("adds paths that collide on some file systems", lines)


async def _check_large_files(repository: Repository, base: Sha, tree: Sha, diff: Diff) -> Failure | None:
    raw = await raw_large_files(repository, base, tree, diff)
    why = "fleet can commit only LFS pointers, and can't store the contents of such files. Leave these files unchanged"
    return _refuse("changes files stored in Git LFS", (*map(printable, raw), why)) if raw else None


async def _check_secrets(repository: Repository, base: Sha, tree: Sha) -> Failure | None:
    patch = await repository.added_lines(base, tree, cap=PATCH_CAP)
    if patch is None:
        limit = f"more than {PATCH_CAP} bytes of changed lines"
        return _refuse("the change is too large to search for secrets", (limit,))
    findings = await to_thread.run_sync(secrets_in, patch)
    return _refuse("the change seems to contain a secret", map(str, findings)) if findings else None


def _may_hold_secrets(changes: Sequence[PathChange]) -> bool:
    """Whether any changed file could contain a secret. Most changes do not, and need no patch."""
    return any(
        may_hold_secret(source_content(change, change.source)) for change in changes if change.source is not None
    )


def _unfit_tree(findings: Iterable[ViewFinding]) -> Failure:
    return _refuse("the worktree contains files that are not safe for git", map(str, findings))


def _unfit_change(findings: Iterable[ViewFinding]) -> Failure:
    return _refuse("the change contains files that may not be committed", map(str, findings))


def _refuse(summary: str, lines: Iterable[str]) -> Failure:
    listed = list(lines)
    more = [f"... and {len(listed) - LISTED} more"] if len(listed) > LISTED else []
    return Failure(kind="bounds", summary=summary, evidence="\n".join((*listed[:LISTED], *more)))


# ---- intake ----------------------------------------------------------------------------------------------------------
# Takes in the work of a node. A node may be broken or malicious: its pack is hostile input until the very end.
#
# Our own code first checks the pack (sizes, counts, checksum). Then git unpacks it into a quarantine beside the store,
# where its only commit must have the order's base as its only parent. Git rejects objects with references that are
# neither in the pack nor in the store. Only the commit's trees and files move into the store. The commit that lands is
# made here, with our author and trailers, after the same checks as a change made on this machine.


LONGEST_COMMIT = 64 * 1024
MAX_DEPTH = 100
HEX = re.compile(r"[0-9a-f]+")


class IntakeError(Exception):
    """The reason why a node's delivery is rejected. The store does not contain any part of it."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A node's delivery for an order."""

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
    """Commit and pin the work of a node, unless it breaks a rule. Raises `IntakeError` if it can't be honest work."""
    tree = await _unpack(store, arrival, limits or PackLimits())
    diff = await store.repository.diff(arrival.base, tree)
    suspicious = await _check_files(store, diff, settings)
    commit = partial(commit_tree, store, arrival.base, tree, signature=signature, touches=touches, settings=settings)
    return await commit(suspicious=suspicious)


async def _unpack(store: Store, arrival: Arrival, limits: PackLimits) -> Sha:
    """Return the tree of the commit in a pack, with all its objects in the store."""
    if len(arrival.commit) != len(arrival.base) or HEX.fullmatch(arrival.commit) is None:
        raise IntakeError("its commit id is not valid")
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
            raise IntakeError(f"git rejects the pack: {_last_line(unpacked.stderr)}")
        tree = await _tree_of_one_commit(store, quarantine, arrival, env)
        await to_thread.run_sync(_settle, quarantine, store.git_dir / "objects", tree)
        return tree


def _settle(quarantine: Path, objects: Path, tree: Sha) -> None:
    """Move the objects of a tree into the store. Git has checked that they are complete."""
    _move(quarantine, objects, _new_objects(quarantine, tree, len(tree) // 2))


def _new_objects(quarantine: Path, tree: Sha, id_size: int) -> list[Sha]:
    """Return a tree and all objects below it that arrived. The others were in the store before.

    An object comes after its references, so a kill never leaves an incomplete tree in the store.
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
                    pending.append((node_id(node), False))
                else:
                    files.append(node_id(node))
        seen.add(id_)
    return [*dict.fromkeys(files), *folders]


def _loose(folder: Path, id_: Sha, kind: str, longest: int = PackLimits().bytes) -> bytes | None:
    """Return the content of an object that git wrote here, if it has this kind."""
    try:
        packed = (folder / id_[:2] / id_[2:]).read_bytes()
    except FileNotFoundError:
        return None
    header, _, content = zlib.decompressobj().decompress(packed, longest).partition(b"\0")
    size = header.removeprefix(f"{kind} ".encode())
    return content if size.isdigit() and int(size) == len(content) else None


async def _tree_of_one_commit(store: Store, quarantine: Path, arrival: Arrival, env: dict[str, str]) -> Sha:
    """Return the tree of the commit. Git does not unpack a commit that a killed engine left in the store."""
    content = await to_thread.run_sync(_loose, quarantine, arrival.commit, "commit", LONGEST_COMMIT)
    if content is None:
        answer = await store.git.ask("cat-file", "commit", arrival.commit, env=env, cap=LONGEST_COMMIT)
        if answer.exit_code != 0 or answer.cut:
            raise IntakeError(f"commit {arrival.commit[:12]} is missing or too long")
        content = answer.stdout
    try:
        commit = parse_commit(content)
    except ValueError as error:
        raise IntakeError(f"can't read commit {arrival.commit[:12]}") from error
    if commit.parents != (arrival.base,):
        named = " and ".join(each[:12] for each in commit.parents) or "an empty history"
        raise IntakeError(f"its commit is based on {named} instead of {arrival.base[:12]}")
    return commit.tree


def _move(quarantine: Path, objects: Path, ids: Sequence[Sha]) -> None:
    """Move objects into the store. They are named by content, so an existing file is the same object."""
    for id_ in ids:
        source, goal = quarantine / id_[:2] / id_[2:], objects / id_[:2] / id_[2:]
        if source.exists() and not goal.exists():
            goal.parent.mkdir(exist_ok=True)
            source.rename(goal)
            reached("an object of a node is in the store, and the others may not be")


async def _check_files(store: Store, diff: Diff, settings: WorktreeSettings) -> bool:
    """Whether any file may contain a secret. Raises `IntakeError` for files that a local worktree would reject."""
    if len(diff.entries) > settings.box.max_files:
        raise IntakeError(f"it changes {len(diff.entries)} paths, and the limit is {settings.box.max_files}")
    for path in diff.present:
        parts = PurePosixPath(path).parts
        is_odd = not path.isprintable() or len(parts) > MAX_DEPTH
        if is_odd or as_text(path) != path or any(map(is_git_name, parts)):
            raise IntakeError(f"it contains a path that is not allowed: {printable(path)}")
    return await store.repository.run(partial(_check_contents, store, diff.files, settings.max_file_bytes))


def _check_contents(store: Store, entries: Sequence[DiffEntry], most: int) -> bool:
    suspicious, problem = False, ""
    contents = store.repository.objects.blobs([entry.id for entry in entries])
    for entry, content in zip(entries, contents, strict=True):  # read to the end: it holds git's only conversation
        if len(content) > most:
            problem = f"{printable(entry.path)} has {len(content)} bytes, and the limit is {most}"
        elif entry.mode == LINK and _may_lead_out(entry.path, os.fsdecode(content)):
            problem = f"{printable(entry.path)} is a link that may leave the repository"
        suspicious = suspicious or may_hold_secret(content)
    if problem:
        raise IntakeError(problem)
    return suspicious


def _may_lead_out(path: str, target: str) -> bool:
    """Whether a link could leave the repository, whatever links are on its path."""
    parts = PurePosixPath(target).parts
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or ".." in parts[ups:] or ups > path.count("/")


def _last_line(output: bytes) -> str:
    return printable(text(output).strip().rpartition("\n")[2])[:300] or "git printed no error"
