"""Turns what a worker left into a commit, or says why it may not be one. Called when the box is dead.

First the tree is scanned without git, then git lists the changed paths and they are looked at, and only then they
become objects. A commit is pinned by a ref before anybody is told of it.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import to_thread

from fleet.core.facts import Failure
from fleet.core.ids import Sha, attempt_ref, kept_ref
from fleet.core.paths import matches, outside
from fleet.ports import Change, Signature
from worktrees.alike import alike, alike_by_git
from worktrees.change import Below, Survey, select, survey
from worktrees.changes import LINK, Entry, commit_change, content, entries_in
from worktrees.fold import differing
from worktrees.git import Git, fields
from worktrees.handover import HandOver
from worktrees.leavings import Left, left_by
from worktrees.message import Person, author_of, compose
from worktrees.mount import Overlay
from worktrees.objects import signed_now
from worktrees.patches import PATCH
from worktrees.scan import Finding, may_hold_secret, open_up, scan_changed, scan_tree, secrets_in, shown
from worktrees.settings import HandSettings
from worktrees.slot import Slot
from worktrees.store import Store
from worktrees.strays import Odd
from worktrees.upper import changes
from worktrees.view import View

GITLINK = "160000"
GONE = "000000"
PATCH_CAP = 16 * 1024 * 1024
LISTED = 50  # paths named in a failure; the rest is counted


@dataclass(frozen=True, slots=True)
class Touched:
    """A path that differs between two trees."""

    path: str
    mode: str
    """The new mode; zeros where the path is gone."""


async def commit_slot(
    store: Store,
    slot: Slot,
    base: Sha,
    handed: HandOver | None,
    *,
    signature: Signature,
    touches: Sequence[str],
    settings: HandSettings,
    most_files: int,
) -> Change | Failure:
    """Scan, commit and pin what differs from `base` in a slot that may hold so many files in all."""
    left = None
    if handed is not None:
        with suppress(Odd):
            left = await left_by(store, slot, handed, max_files=settings.max_files)
    if left is None:
        left = await _gone_through(slot, handed, most_files)
    if left.findings:
        return _refused("the worktree holds what git must not meet", map(str, left.findings))
    paths = left.paths
    findings = await to_thread.run_sync(
        lambda: scan_changed(View((slot.tree,)), tuple(map(os.fsdecode, paths)), max_file_bytes=settings.max_file_bytes)
    )
    if findings:
        return _refused("the change holds what may not be committed", map(str, findings))
    entries = await to_thread.run_sync(_opened, slot.tree, paths)
    return await commit_entries(
        store, base, entries, signature=signature, touches=touches, protected=settings.protected, email=settings.email
    )


async def commit_overlay(
    store: Store,
    overlay: Overlay,
    below: Below,
    *,
    signature: Signature,
    touches: Sequence[str],
    settings: HandSettings,
) -> Change | Failure:
    """Scan, commit and pin what an overlay's tenant changed. Looks at nothing else."""
    upper = overlay.upper
    surveyed = await to_thread.run_sync(_surveyed, store.git, below, upper, settings.max_files)
    if not isinstance(surveyed, Survey):
        return _refused("the worktree holds what git must not meet", map(str, surveyed))
    selected = await select(store.git, surveyed)
    view, there = View((upper, *below.view.layers)), [entry.path for entry in selected.there]
    findings = await to_thread.run_sync(lambda: scan_changed(view, there, max_file_bytes=settings.max_file_bytes))
    if findings:
        return _refused("the change holds what may not be committed", map(str, findings))
    gone = [Entry(os.fsencode(path)) for path in selected.gone]
    new = [Entry(os.fsencode(entry.path), entry.mode, upper / entry.path) for entry in selected.there]
    return await commit_entries(
        store,
        below.commit,
        (*gone, *new),
        signature=signature,
        touches=touches,
        protected=settings.protected,
        email=settings.email,
    )


def _surveyed(git: Git, below: Below, upper: Path, max_files: int) -> Survey | tuple[Finding, ...]:
    findings = scan_tree(upper, max_files=max_files, whiteouts=True)
    return findings or survey(git, below, changes(upper), upper)


async def commit_entries(
    store: Store,
    base: Sha,
    entries: Sequence[Entry],
    *,
    signature: Signature,
    touches: Sequence[str],
    protected: Sequence[str],
    email: str,
) -> Change | Failure:
    """Commit and pin a change set that was scanned: what a slot's status lists, or the upper layer of an overlay."""
    tree = await commit_change(store.git, store.objects, base, entries)
    touched, pairs = await _seen(store, base, tree)
    failure = _bounds(touched, touches, protected)
    if failure is None and pairs:
        return _refused(
            "adds names that some file systems take for one",
            (f"{shown(path)}: is like {shown(other)}" for path, other in pairs),
        )
    if failure is None and await to_thread.run_sync(_worth_a_look, entries):
        failure = await _secrets(store.git, base, tree)
    if failure is not None:
        return failure
    commit = await _commit(store, tree, base, signature, email)
    name = kept_ref if signature.unfinished else attempt_ref
    await store.refs.pin(name(signature.run, signature.subtask, signature.attempt), commit)
    return Change(commit=commit, paths=tuple(touch.path for touch in touched))


async def _gone_through(slot: Slot, handed: HandOver | None, most_files: int) -> Left:
    """What a tenant left in a slot, by a look at everything in it."""
    findings = await to_thread.run_sync(lambda: scan_tree(slot.tree, max_files=most_files, modes=False))
    if findings:
        return Left((), findings)
    if handed is not None:  # its index may lag behind
        await slot.git("read-tree", "-m", "-i", handed.base)
    return Left(await _changed_paths(slot), ())


async def _changed_paths(slot: Slot) -> tuple[bytes, ...]:
    """What `git add --all` would take up, in one call: changed, gone and new files that are not ignored."""
    options = ("--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")
    listed = (await slot.git("status", *options, env=slot.config)).split(b"\0")
    return tuple(entry[3:] for entry in listed if entry)


def _opened(tree: Path, paths: Sequence[bytes]) -> tuple[Entry, ...]:
    """The changed paths, readable. Git takes what it can't read for changed, so nothing closed is missed."""
    entries = entries_in(tree, paths)
    for entry in entries:
        if entry.source is not None and entry.mode != LINK:
            open_up(entry.source, entry.source.lstat().st_mode)
    return entries


async def _seen(store: Store, base: Sha, tree: Sha) -> tuple[tuple[Touched, ...], tuple[tuple[str, str], ...]]:
    """The paths that differ in a tree, and those of the new ones that are like others."""
    objects = store.objects
    if objects.by_git is not None:
        touched = await touched_between(store.git, base, tree)
        return touched, await alike_by_git(store.git, base, tree, _there(touched))

    def seen() -> tuple[tuple[Touched, ...], tuple[tuple[str, str], ...]]:
        before = objects.commit(base).tree
        found = differing(objects, before, tree)
        touched = tuple(Touched(os.fsdecode(each.path), each.new[0].decode() if each.new else GONE) for each in found)
        return touched, alike(objects, before, tree, _there(touched))

    return await objects.run(seen)


def _there(touched: Sequence[Touched]) -> list[str]:
    return [touch.path for touch in touched if touch.mode != GONE]


async def touched_between(git: Git, old: Sha, new: Sha) -> tuple[Touched, ...]:
    """The paths that differ, in git's order."""
    parts = fields(await git("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new))
    return tuple(Touched(path, raw.split(" ")[1]) for raw, path in zip(parts[::2], parts[1::2], strict=True))


async def pinned_change(store: Store, ref: str) -> Change | None:
    """The commit that a ref pins, with its paths."""
    pinned = await store.objects.run(partial(store.objects.find, ref))
    if pinned is None or pinned.kind != "commit":
        return None
    touched = await touched_between(store.git, f"{pinned.id}^", pinned.id)
    return Change(commit=pinned.id, paths=tuple(touch.path for touch in touched))


def _bounds(touched: Sequence[Touched], touches: Sequence[str], protected: Sequence[str]) -> Failure | None:
    if not touched:
        return Failure(kind="empty", summary="nothing was changed")
    links = [touch.path for touch in touched if touch.mode == GITLINK]
    if links:
        return _refused("adds or moves a submodule", map(shown, links))
    paths = [touch.path for touch in touched]
    beyond = outside(paths, touches) if touches else ()
    if beyond:
        allowed = f"allowed: {', '.join(touches)}"
        return _refused("changes files outside the bounds of the subtask", (*map(shown, beyond), allowed))
    held = [path for path in paths if matches(path, protected) and path not in touches]
    if held:
        why = "these are protected: only a subtask whose `touches` names the very file may change it"
        return _refused("changes protected files", (*map(shown, held), why))
    return None


async def _secrets(git: Git, base: Sha, tree: Sha) -> Failure | None:
    patch = await git.ask(*PATCH, "--unified=0", base, tree, cap=PATCH_CAP)
    if patch.cut or patch.exit_code != 0:
        return _refused("the change is too large to be looked over", (f"more than {PATCH_CAP} bytes of changed lines",))
    findings: tuple[Finding, ...] = await to_thread.run_sync(secrets_in, patch.stdout)
    return _refused("the change seems to hold a secret", map(str, findings)) if findings else None


def _refused(summary: str, lines: Iterable[str]) -> Failure:
    listed = list(lines)
    more = [f"... and {len(listed) - LISTED} more"] if len(listed) > LISTED else []
    return Failure(kind="bounds", summary=summary, evidence="\n".join((*listed[:LISTED], *more)))


def _worth_a_look(entries: Sequence[Entry]) -> bool:
    """Whether anything in a change set could be a secret: most have none, and need no patch."""
    return any(may_hold_secret(content(entry, entry.source)) for entry in entries if entry.source is not None)


async def _commit(store: Store, tree: Sha, base: Sha, signature: Signature, email: str) -> Sha:
    author, committer, message = author_of(signature, email), Person("fleet", email), compose(signature).encode()
    if store.objects.by_git is not None:
        who = {**author.author(), **committer.committer()}
        return await store.git.line("commit-tree", tree, "-p", base, env=who, data=message)
    put = partial(store.objects.put_commit, tree, base, committer=committer, message=message)
    return await store.objects.run(lambda: put(author=signed_now(author)))
