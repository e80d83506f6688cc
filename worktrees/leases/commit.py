"""Turns what a worker left into a commit, or says why it may not be one. Called when nothing runs in the box any more.

First the tree is scanned without git, then the changed paths are listed and scanned, and only then they become
objects. A commit is pinned by a ref before it is reported.
"""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from anyio import to_thread

from fleet.core.base.ids import Sha, attempt_ref, kept_ref
from fleet.core.base.paths import matches, outside
from fleet.core.state.facts import Failure
from fleet.ports.worktrees import Change, Signature
from worktrees.base.fs import as_text, printable
from worktrees.base.settings import WorktreeSettings
from worktrees.git.commit_message import author_of, committer_of, compose
from worktrees.git.diff import Diff
from worktrees.git.large_files import raw_large_files
from worktrees.git.program import Git
from worktrees.git.repository import Repository
from worktrees.git.write_tree import PathChange, changes_in, source_content
from worktrees.leases.ignored import BaseFiles, select
from worktrees.leases.pool import Slot
from worktrees.leases.scan import Finding, may_hold_secret, scan_changed, scan_tree, secrets_in
from worktrees.leases.union_view import OverlayChange, View, read_changes
from worktrees.sandbox.overlay_mount import Overlay
from worktrees.store.store import Store

PATCH_CAP = 16 * 1024 * 1024
LISTED = 50  # paths named in a failure; the rest is counted
STATUS = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")


async def find_slot_changes(
    slot: Slot, settings: WorktreeSettings, *, max_files: int
) -> tuple[PathChange, ...] | Failure:
    """Scan a slot, and list what `git add --all` would take: changed, removed and new files that are not ignored."""
    findings = await to_thread.run_sync(lambda: scan_tree(slot.tree, max_files=max_files))
    if findings:
        return _unfit_tree(findings)
    paths = tuple(entry[3:] for entry in (await slot.git(*STATUS)).split(b"\0") if entry)
    names, view = tuple(map(os.fsdecode, paths)), View((slot.tree,))
    findings = await to_thread.run_sync(lambda: scan_changed(view, names, max_file_bytes=settings.max_file_bytes))
    return _unfit_change(findings) if findings else await to_thread.run_sync(changes_in, slot.tree, paths)


async def find_overlay_changes(
    git: Git, overlay: Overlay, below: BaseFiles, settings: WorktreeSettings
) -> tuple[PathChange, ...] | Failure:
    """Scan what an overlay's tenant changed, and list what `git add --all` would take of it."""
    upper = overlay.upper
    findings, changes = await to_thread.run_sync(_scan_upper, upper, settings.max_files)
    if findings:
        return _unfit_tree(findings)
    selection = await select(git, below, changes, upper)
    view, names = View((upper, *below.view.layers)), [change.path for change in selection.present]
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
    """Commit and pin a tree, unless it breaks a rule. `suspicious`: whether it is searched for secrets."""
    repository = store.repository
    diff = await repository.diff(base, tree)
    failure = (
        _check_bounds(diff, touches, settings.protected, own=await _own_conftests(repository, base, diff, touches))
        or await _check_names(repository, base, tree, diff)
        or await _check_large_files(repository, base, tree, diff)
        or (await _check_secrets(repository, base, tree) if suspicious else None)
    )
    if failure is not None:
        return failure
    author = author_of(signature, settings.author, settings.email)
    committer = committer_of(settings.author, settings.email)
    message = compose(signature)
    commit = await repository.commit_tree(tree, base, author=author, committer=committer, message=message)
    ref = kept_ref if signature.unfinished else attempt_ref
    await repository.refs.pin(ref(signature.run, signature.subtask, signature.attempt), commit)
    return Change(commit=commit, paths=tuple(map(as_text, diff.paths)))


def _scan_upper(upper: Path, max_files: int) -> tuple[tuple[Finding, ...], tuple[OverlayChange, ...]]:
    findings = scan_tree(upper, max_files=max_files, whiteouts=True)
    return findings, () if findings else read_changes(upper)


async def _own_conftests(repository: Repository, base: Sha, diff: Diff, touches: Sequence[str]) -> frozenset[str]:
    """The `conftest.py` in new folders that `touches` covers: they concern only tests that the change brings along."""
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
        return Failure(kind="empty", summary="nothing was changed")
    if diff.gitlinks:
        return _refused("adds or moves a submodule", map(printable, sorted(diff.gitlinks)))
    beyond = outside(diff.paths, touches) if touches else ()
    if beyond:
        allowed = f"allowed: {', '.join(touches)}"
        return _refused("changes files outside the bounds of the subtask", (*map(printable, beyond), allowed))
    held = [path for path in diff.paths if matches(path, protected) and path not in touches and path not in own]
    if held:
        why = "these files are protected: only a subtask whose `touches` names the file itself may change it"
        return _refused("changes protected files", (*map(printable, held), why))
    return None


async def _check_names(repository: Repository, base: Sha, tree: Sha, diff: Diff) -> Failure | None:
    pairs = await repository.colliding_names(base, tree, diff.present)
    if not pairs:
        return None
    lines = (f"{printable(path)} collides with {printable(other)}" for path, other in pairs)
    return _refused("adds paths that collide on some file systems", lines)


async def _check_large_files(repository: Repository, base: Sha, tree: Sha, diff: Diff) -> Failure | None:
    raw = await raw_large_files(repository, base, tree, diff)
    why = "only pointers to such files can be committed, and fleet can't store their contents: leave them as they are"
    return _refused("writes files that Git LFS has to store", (*map(printable, raw), why)) if raw else None


async def _check_secrets(repository: Repository, base: Sha, tree: Sha) -> Failure | None:
    patch = await repository.added_lines(base, tree, cap=PATCH_CAP)
    if patch is None:
        limit = f"more than {PATCH_CAP} bytes of changed lines"
        return _refused("the change is too large to be searched for secrets", (limit,))
    findings = await to_thread.run_sync(secrets_in, patch)
    return _refused("the change seems to contain a secret", map(str, findings)) if findings else None


def _may_hold_secrets(changes: Sequence[PathChange]) -> bool:
    """Whether any changed file could hold a secret: most changes have none, and need no patch."""
    return any(
        may_hold_secret(source_content(change, change.source)) for change in changes if change.source is not None
    )


def _unfit_tree(findings: Iterable[Finding]) -> Failure:
    return _refused("the worktree contains files that git must not read", map(str, findings))


def _unfit_change(findings: Iterable[Finding]) -> Failure:
    return _refused("the change contains files that may not be committed", map(str, findings))


def _refused(summary: str, lines: Iterable[str]) -> Failure:
    listed = list(lines)
    more = [f"... and {len(listed) - LISTED} more"] if len(listed) > LISTED else []
    return Failure(kind="bounds", summary=summary, evidence="\n".join((*listed[:LISTED], *more)))
