"""Compares a run's journal with its store on resume: restores commits, pins them again, or reports them as lost.

After a kill, git is in the state of some moment, and the marks resolve that. This module handles the rest: a power
failure before objects reached the disk, and refs, locks and stores that were deleted or left by others. Missing objects
are copied from the user's repository, which has all published ones. Readable objects are never deleted.
"""

import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from anyio import to_thread

from fleet.core.base.ids import RunId, Sha, aside_ref, attempt_ref, kept_ref, result_branch, run_refs, tip_ref
from fleet.ports.worktrees import EffectError, NamedCommits, RecoveredCommits
from worktrees.git.object_format import new_digest
from worktrees.git.objects import Objects
from worktrees.git.program import Git, text
from worktrees.store.integrator import landed_since
from worktrees.store.store import Store, fetch
from worktrees.target.publish import published_ref
from worktrees.target.target import Target

FOLDER = re.compile(r"[0-9a-f]{2}")
NAME = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
CHUNK = 1024 * 1024
EVER = 0.0


async def repair_store(store: Store, target: Target, named: NamedCommits, *, email: str) -> RecoveredCommits:
    """Restore as much as possible, and set the refs of the run as in the journal. Raises `EffectError`."""
    branch = await target.git.sha(f"refs/heads/{result_branch(named.run)}")
    is_shown = named.published is None or branch is not None
    refs, pins = await store.git.refs(f"{run_refs(named.run)}/"), _pins(named)
    folder = store.git_dir / "objects"
    if named.written_since is not None:
        await to_thread.run_sync(drop_damaged, folder, named.written_since)
    elif await _is_as_named(store, named, refs):
        return RecoveredCommits(named.tip, shown=is_shown)
    wanted = {named.tip, *pins.values(), *named.landed, *refs.values(), *([branch] if branch else [])}
    await _fetch_missing(store, target, {named.tip, branch or named.tip})
    intact = await _restore(store, target, named.base, wanted)
    if not intact >= {named.tip, *pins.values()}:  # possibly for objects that were damaged long ago
        await to_thread.run_sync(drop_damaged, folder, EVER)
        intact = await _restore(store, target, named.base, wanted)
    lost = await _pin_again(store, named, refs, intact)
    tip = await _place_tip(store, named, refs.get(tip_ref(named.run)), intact)
    if branch is not None and branch in intact and refs.get(published_ref(named.run)) != branch:
        await _recognise_branch(store, named, branch, email)
    await _remove_broken_refs(store, named.run, lost)
    below = "" if tip == named.tip else text(await store.git("rev-list", f"{named.base}..{tip}"))
    return RecoveredCommits(tip, frozenset(map(Sha, below.split())), frozenset(lost), shown=is_shown)


def _pins(named: NamedCommits) -> dict[str, Sha]:
    finished = {attempt_ref(named.run, *key): commit for key, commit in named.attempts.items()}
    return finished | {kept_ref(named.run, *key): commit for key, commit in named.kept.items()}


async def _is_as_named(store: Store, named: NamedCommits, refs: dict[str, Sha]) -> bool:
    """Whether every ref and every commit is as in the journal. That is enough if the last engine ended cleanly."""
    pins = {**_pins(named), tip_ref(named.run): named.tip}
    if any(refs.get(ref) != commit for ref, commit in pins.items()):
        return False
    return not await store.repository.missing({*refs.values(), *pins.values()})


# ---- missing objects -------------------------------------------------------------------------------------------------


async def _fetch_missing(store: Store, target: Target, commits: Iterable[Sha]) -> None:
    """Fetch full histories: for a deleted store, this is faster than single objects."""
    for commit in await store.repository.missing(commits):
        with suppress(EffectError):
            await fetch(store, target, commit)


async def _restore(store: Store, target: Target, base: Sha, commits: Collection[Sha]) -> set[Sha]:
    """Copy missing objects of these commits from the user's repository, and return the commits that are complete."""
    objects, theirs = store.repository.objects, Objects(target.stand_in.path)
    before: set[Sha] = set()
    try:
        while True:
            complete, missing = await _examine(store.git, base, sorted(commits))
            if not missing or missing == before:
                return complete
            await store.repository.run(partial(_copy, objects, theirs, missing))
            before = missing
    finally:
        await to_thread.run_sync(theirs.close)


async def _examine(git: Git, base: Sha, commits: Sequence[Sha]) -> tuple[set[Sha], set[Sha]]:
    """Return the complete commits down to the base, and the missing objects of the others, as far as git finds them.

    Uses one git process for all of them. If something is missing, each half is examined.
    """
    asked = "".join(f"{commit}\n" for commit in (*commits, f"^{base}"))
    walk = ("rev-list", "--objects", "--no-object-names", "--missing=print", "--stdin")
    answer = await git.ask(*walk, data=asked.encode())
    missing = {Sha(line[1:]) for line in text(answer.stdout).splitlines() if line.startswith("?")}
    if answer.exit_code == 0 and not missing:
        return set(commits), set()
    if len(commits) == 1:
        return set(), missing or {commits[0]}
    middle = len(commits) // 2
    (first, first_missing), (second, second_missing) = [
        await _examine(git, base, half) for half in (commits[:middle], commits[middle:])
    ]
    return first | second, first_missing | second_missing


def _copy(objects: Objects, theirs: Objects, ids: Iterable[Sha]) -> None:
    for id_ in objects.missing(sorted(ids)):
        with suppress(EffectError):
            stored = theirs.find(id_)
            if stored is not None:
                objects.put(stored.kind, stored.content)


# ---- refs ------------------------------------------------------------------------------------------------------------


async def _pin_again(store: Store, named: NamedCommits, refs: dict[str, Sha], intact: set[Sha]) -> set[Sha]:
    """Set the refs of attempts as in the journal, and return the commits that are lost.

    If the tip is intact, the parts of a landed attempt are no longer needed.
    """
    pins = _pins(named)
    lost = await store.repository.missing(pins.values())
    for key, commit in (*named.attempts.items(), *named.kept.items()):
        if commit not in intact and (named.tip not in intact or key in named.underway):
            lost.add(commit)
    for ref, commit in pins.items():
        if commit not in lost and refs.get(ref) != commit:
            await store.repository.refs.pin(ref, commit)
    return lost if named.tip in intact else lost | {named.tip}


async def _place_tip(store: Store, named: NamedCommits, current: Sha | None, intact: set[Sha]) -> Sha:
    """Set the integration branch as in the journal, unless its trailers account for the commits above that.

    If its last commits are lost, use the highest intact one whose tree passed.
    """
    git, tip = store.git, named.tip
    if tip not in intact:
        candidates = intact.intersection(named.landed)
        highest = await git("merge-base", "--independent", *candidates) if candidates else b""
        tip = Sha(text(highest).split()[0]) if highest else named.base
    elif current is not None and current in intact and current != tip:
        if await git.is_ancestor(tip, current):
            members = await landed_since(git, named.run, old=tip, tip=current)
            if members and {(member.subtask, member.attempt) for member in members} <= named.underway:
                return tip  # it landed, and a crash came before the journal entry
        if not await git.is_ancestor(current, tip):  # a journal that lost its end, or a commit made manually
            await store.repository.refs.pin(aside_ref(named.run, current), current)
    if current != tip:
        await store.repository.refs.pin(tip_ref(named.run), tip)
    return tip


async def _recognise_branch(store: Store, named: NamedCommits, branch: Sha, email: str) -> None:
    """Record the result branch as ours if every commit of it is, although our record differs."""
    members = await landed_since(store.git, named.run, old=named.base, tip=branch)
    committers = text(await store.git("log", "--no-show-signature", "--format=%ce", f"{named.base}..{branch}")).split()
    if members and len(members) == len(committers) and set(committers) == {email}:
        await store.repository.refs.pin(published_ref(named.run), branch)


async def _remove_broken_refs(store: Store, run: RunId, lost: set[Sha]) -> None:
    refs = await store.git.refs(f"{run_refs(run)}/")
    broken = lost | await store.repository.missing(refs.values())
    for ref, commit in refs.items():
        if commit in broken:
            await store.git("update-ref", "-d", ref)


# ---- damage after a power failure ------------------------------------------------------------------------------------


def drop_damaged(objects: Path, since: float) -> int:
    """Remove recent loose objects that differ from their names, and empty ones. Return how many.

    No data is lost: they are unreadable, and git would use them instead of the real object.
    """
    dropped = 0
    for path, status in _loose_objects(objects):
        if status.st_size == 0 or (status.st_mtime >= since and not _is_sound(path)):
            path.unlink(missing_ok=True)
            dropped += 1
    return dropped


def _loose_objects(objects: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for folder in objects.iterdir():
        if FOLDER.fullmatch(folder.name):
            for path in folder.iterdir():
                if NAME.fullmatch(path.name):
                    with suppress(FileNotFoundError):
                        yield path, path.stat(follow_symlinks=False)


def _is_sound(path: Path) -> bool:
    """Whether the content of a loose object matches the hash in its name."""
    digest = new_digest(len(path.parent.name + path.name))
    decompressor = zlib.decompressobj()
    try:
        with path.open("rb") as file:
            while chunk := decompressor.unconsumed_tail or file.read(CHUNK):
                digest.update(decompressor.decompress(chunk, CHUNK))
    except (OSError, zlib.error):
        return False
    return decompressor.eof and digest.hexdigest() == path.parent.name + path.name
