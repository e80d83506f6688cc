"""Turns what a worker left into a commit, or says why it may not be one. Called when the box is dead.

First the tree is scanned without git, then the changed paths are listed and looked at, and only then git reads them.
A commit is pinned by a ref before anybody is told of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anyio import to_thread

from fleet.core.facts import Failure
from fleet.core.ids import Sha, attempt_ref
from fleet.core.paths import matches, outside
from fleet.ports import Change, Signature
from worktrees.git import Git, fields
from worktrees.message import Person, author_of, compose
from worktrees.scan import Finding, scan_changed, scan_tree, secrets_in, shown
from worktrees.settings import HandSettings
from worktrees.slots import Slot
from worktrees.store import Store

GITLINK = "160000"
PATCH_CAP = 16 * 1024 * 1024
LISTED = 50  # paths named in a failure; the rest is counted
PATCH = ("diff-tree", "-p", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")


@dataclass(frozen=True, slots=True)
class Touched:
    """A path that differs between two trees."""

    path: str
    mode: str
    """The new mode; zeros where the path is gone."""


async def commit_slot(
    store: Store, slot: Slot, base: Sha, *, signature: Signature, touches: Sequence[str], settings: HandSettings
) -> Change | Failure:
    """Scan, commit and pin what differs from `base` in a slot."""
    findings = await to_thread.run_sync(lambda: scan_tree(slot.tree, max_files=settings.max_files))
    if findings:
        return _refused("the worktree holds what git must not meet", map(str, findings))
    found = fields(await slot.git("ls-files", "-z", "--modified", "--others", "--exclude-standard"))
    findings = await to_thread.run_sync(
        lambda: scan_changed(slot.tree, tuple(dict.fromkeys(found)), max_file_bytes=settings.max_file_bytes)
    )
    if findings:
        return _refused("the change holds what may not be committed", map(str, findings))
    await slot.git("add", "--all", "--", ".")
    tree = await slot.git.line("write-tree")
    touched = await touched_between(store.git, base, tree)
    failure = _bounds(touched, touches, settings.protected) or await _secrets(store.git, base, tree)
    if failure is not None:
        return failure
    commit = await _commit(store.git, tree, base, signature, settings.email)
    await store.git("update-ref", attempt_ref(signature.run, signature.subtask, signature.attempt), commit)
    return Change(commit=commit, paths=tuple(touch.path for touch in touched))


async def touched_between(git: Git, old: Sha, new: Sha) -> tuple[Touched, ...]:
    """The paths that differ, in git's order."""
    parts = fields(await git("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new))
    return tuple(Touched(path, raw.split(" ")[1]) for raw, path in zip(parts[::2], parts[1::2], strict=True))


async def pinned_change(git: Git, ref: str) -> Change | None:
    """The commit that a ref pins, with its paths."""
    commit = await git.sha(ref)
    if commit is None:
        return None
    touched = await touched_between(git, f"{commit}^", commit)
    return Change(commit=commit, paths=tuple(touch.path for touch in touched))


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


async def _commit(git: Git, tree: Sha, base: Sha, signature: Signature, email: str) -> Sha:
    who = {**author_of(signature, email).author(), **Person("fleet", email).committer()}
    return await git.line("commit-tree", tree, "-p", base, env=who, data=compose(signature).encode())
