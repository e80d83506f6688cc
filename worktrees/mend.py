"""What a run's journal names, held against its store before anything begins: restored, pinned again, or known gone.

A kill leaves git as it was at some moment, and the marks settle that. This is for what a kill does not do: power that
failed before objects reached the disk, refs, locks and stores that somebody deleted or left. What is missing is looked
for in the user's repository, which has all that was published. Nothing that can be read is ever thrown away.
"""

import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from anyio import to_thread

from fleet.core.ids import RunId, Sha, aside_ref, attempt_ref, kept_ref, result_branch, run_refs, tip_ref
from fleet.ports import Broken, Named, Recovered
from worktrees.fold import differing
from worktrees.git import Git, text
from worktrees.integrator import landed_since
from worktrees.objects import Missing, Objects
from worktrees.publish import published_ref
from worktrees.store import Store, fetch
from worktrees.target import Target

FOLDER = re.compile(r"[0-9a-f]{2}")
NAME = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
SHA1_REST = 38  # digits of a name below its folder
CHUNK = 1024 * 1024
GITLINK = b"160000"
ROUNDS = 10_000  # objects missing from one commit; a tree that was brought back may miss others


async def mend(store: Store, target: Target, named: Named, *, email: str) -> Recovered:
    """Restore what can be had, pin it, and put the integration branch where the journal knows it. Raises `Broken`."""
    branch = await Git(target.git_dir).sha(f"refs/heads/{result_branch(named.run)}")
    shown = named.published is None or branch is not None
    folder = store.git_dir / "objects"
    if named.written_since is not None:
        await to_thread.run_sync(drop_damaged, folder, named.written_since)
    elif await _is_as_named(store, named):
        return Recovered(named.tip, shown=shown)
    try:
        return replace(await _mended(store, target, named, branch, email), shown=shown)
    except Broken:  # what was damaged long ago, too, is better looked for elsewhere
        if not await to_thread.run_sync(drop_damaged, folder, 0.0):
            raise
        return replace(await _mended(store, target, named, branch, email), shown=shown)


async def _is_as_named(store: Store, named: Named) -> bool:
    """Whether every ref is where the journal says, and every commit there: asked where the last engine ended well."""
    refs, pins = await _refs(store.git, named.run), _pins(named)
    if any(refs.get(ref) != commit for ref, commit in {**pins, tip_ref(named.run): named.tip}.items()):
        return False
    return not await _missing_of(store, {*refs.values(), *pins.values()})


async def _mended(store: Store, target: Target, named: Named, branch: Sha | None, email: str) -> Recovered:
    look = _Look(store, target, named, branch)
    refs, pins = await _refs(store.git, named.run), _pins(named)
    if await _is_whole(store, named):
        look.believe({named.tip, *pins.values(), *named.landed})
    stands = await look.whole(named.tip)
    gone = set[Sha]() if stands else {named.tip}
    for key, commit in (*named.attempts.items(), *named.kept.items()):
        if (not stands or key in named.underway) and not await look.whole(commit):
            gone.add(commit)
    gone |= await _missing_of(store, pins.values())
    for ref, commit in pins.items():
        if commit not in gone and refs.get(ref) != commit:
            await store.refs.pin(ref, commit)
    tip = await _standing(look, refs.get(tip_ref(named.run)))
    if branch is not None and await look.whole(branch) and refs.get(published_ref(named.run)) != branch:
        await _recognise(look, branch, email)
    refs = await _refs(store.git, named.run)
    nowhere = await _missing_of(store, refs.values()) | gone
    for ref, commit in refs.items():
        if commit in nowhere:
            await store.git("update-ref", "-d", ref)
    below = "" if tip == named.tip else text(await store.git("rev-list", f"{named.base}..{tip}"))
    return Recovered(tip, frozenset(below.split()), frozenset(gone))


async def _is_whole(store: Store, named: Named) -> bool:
    """Whether nothing at all is missing, down to the base: one walk by git, where looking for each takes its time."""
    wanted = sorted({named.tip, *named.attempts.values(), *named.kept.values()})
    asked = "".join(f"{commit}\n" for commit in (*wanted, f"^{named.base}"))
    try:
        found = await store.git("rev-list", "--objects", "--missing=print", "--stdin", data=asked.encode())
    except Broken:  # a commit is missing, or can't be read
        return False
    return b"\n?" not in b"\n" + found


async def _recognise(look: "_Look", branch: Sha, email: str) -> None:
    """Where we left the result branch is known wrongly. It is ours where every commit says so."""
    named, store = look.named, look.store
    members = await landed_since(store.git, named.run, old=named.base, tip=branch)
    hands = text(await store.git("log", "--no-show-signature", "--format=%ce", f"{named.base}..{branch}")).split()
    if members and len(members) == len(hands) and set(hands) == {email}:
        await store.refs.pin(published_ref(named.run), branch)


async def _missing_of(store: Store, commits: Iterable[Sha]) -> set[Sha]:
    return set(await store.objects.run(partial(store.objects.missing, sorted(set(commits)))))


def _pins(named: Named) -> dict[str, Sha]:
    finished = {attempt_ref(named.run, *key): commit for key, commit in named.attempts.items()}
    return finished | {kept_ref(named.run, *key): commit for key, commit in named.kept.items()}


async def _refs(git: Git, run: RunId) -> dict[str, Sha]:
    listed = text(await git("for-each-ref", "--format=%(refname) %(objectname)", f"{run_refs(run)}/")).splitlines()
    return dict(line.split(" ", 1) for line in listed)


async def _standing(look: "_Look", at: Sha | None) -> Sha:
    """See to it that the integration branch stands where the journal says, or where the trailers tell the rest.

    Where its last commits are gone it goes back to the highest that is whole and whose tree passed.
    """
    named, store = look.named, look.store
    ref = tip_ref(named.run)
    if not await look.whole(named.tip):
        below = [commit for commit in named.landed if await look.whole(commit)]
        heights = {commit: await _height(store.git, named.base, commit) for commit in below}
        tip = max(below, key=lambda commit: heights[commit], default=named.base)
        await store.refs.pin(ref, tip)
        return tip
    if at is None or at == named.tip or not await look.whole(at):
        if at != named.tip:
            await store.refs.pin(ref, named.tip)
        return named.tip
    if await _is_below(store.git, named.tip, at):
        members = await landed_since(store.git, named.run, old=named.tip, tip=at)
        if members and {(member.subtask, member.attempt) for member in members} <= named.underway:
            return named.tip  # it landed, and a crash came before the journal knew
    if not await _is_below(
        store.git, at, named.tip
    ):  # nothing of ours knows it: a journal that lost its end, or a hand
        await store.refs.pin(aside_ref(named.run, at), at)
    await store.refs.pin(ref, named.tip)
    return named.tip


async def _is_below(git: Git, one: Sha, other: Sha) -> bool:
    return (await git.ask("merge-base", "--is-ancestor", one, other)).exit_code == 0


async def _height(git: Git, base: Sha, commit: Sha) -> int:
    return int(await git.line("rev-list", "--count", f"{base}..{commit}"))


@dataclass(slots=True)
class _Look:
    """Whether commits are whole down to the base of the run; what is missing is brought from the user's repository."""

    store: Store
    target: Target
    named: Named
    branch: Sha | None
    """Where the result branch stands."""
    _known: dict[Sha, bool] = field(default_factory=dict)

    def believe(self, commits: Iterable[Sha]) -> None:
        self._known.update(dict.fromkeys(commits, True))

    async def whole(self, commit: Sha) -> bool:
        self._known.setdefault(self.named.base, True)
        if commit not in self._known:
            if commit in {self.named.tip, self.branch} and await _missing_of(self.store, [commit]):
                with suppress(Broken):  # a store that was made anew: all at once is quicker than one by one
                    await fetch(self.store, self.target, commit)
            if self.store.objects.by_git is None:
                await self.store.objects.run(partial(self._look, commit))
            else:
                walk = ("rev-list", "--objects", "--quiet", commit, "--not", self.named.base)
                self._known[commit] = (await self.store.git.ask(*walk)).exit_code == 0
        return self._known[commit]

    def _look(self, commit: Sha) -> None:
        """In process, from the top down to the first that is known, and up again."""
        theirs, line = Objects(self.target.git_dir), list[Sha]()
        try:
            at: Sha | None = commit
            while at is not None and at not in self._known:
                line.append(at)
                at = self._parent(at, theirs)
            for each in reversed(line):
                parent = self._parent(each, theirs)
                self._known[each] = parent is not None and self._known[parent] and self._complete(each, parent, theirs)
        finally:
            theirs.close()

    def _parent(self, commit: Sha, theirs: Objects) -> Sha | None:
        """None where the commit can't be had, or where it is none of a run's: these stand on one commit each."""
        objects = self.store.objects
        if objects.missing([commit]) and not _bring(objects, theirs, commit):
            return None
        return objects.only_parent(commit)

    def _complete(self, commit: Sha, parent: Sha, theirs: Objects) -> bool:
        """Whether all is there that this commit has and its parent has not."""
        objects = self.store.objects
        for _ in range(ROUNDS):
            missing = _missing(objects, parent, commit)
            if not missing:
                return True
            if not all(_bring(objects, theirs, id_) for id_ in missing):
                return False
        return False


def _missing(objects: Objects, parent: Sha, commit: Sha) -> list[Sha]:
    try:
        changed = differing(objects, objects.commit(parent).tree, objects.commit(commit).tree)
    except Missing as missing:
        return [missing.id]
    blobs = (each.new[1].hex() for each in changed if each.new is not None and each.new[0] != GITLINK)
    return objects.missing(list(dict.fromkeys(blobs)))


def _bring(objects: Objects, theirs: Objects, id_: Sha) -> bool:
    """Copy one object from the user's repository, if it is there and is what its name says."""
    with suppress(Broken):
        found = theirs.find(id_)
        return found is not None and objects.put(found.kind, found.content) == id_
    return False


# ---- what power that failed leaves -----------------------------------------------------------------------------------


def drop_damaged(objects: Path, since: float) -> int:
    """Remove loose objects that are not what their names say, of those written lately, and empty ones; how many.

    Nothing is lost by it: they can't be read, and while they lie there git takes them for the object.
    """
    dropped = 0
    for path, status in _loose(objects):
        if status.st_size == 0 or (status.st_mtime >= since and not _sound(path)):
            path.unlink(missing_ok=True)
            dropped += 1
    return dropped


def _loose(objects: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for folder in _named(objects, FOLDER):
        for path in _named(folder, NAME):
            with suppress(FileNotFoundError):
                yield Path(path), path.stat(follow_symlinks=False)


def _named(folder: "Path | os.DirEntry[str]", pattern: re.Pattern[str]) -> "Iterable[os.DirEntry[str]]":
    with os.scandir(folder) as entries:
        return [entry for entry in entries if pattern.fullmatch(entry.name)]


def _sound(path: Path) -> bool:
    """Whether a loose object has the content that its name is the hash of."""
    digest = hashlib.sha1(usedforsecurity=False) if len(path.name) == SHA1_REST else hashlib.sha256()
    squeezed = zlib.decompressobj()
    try:
        with path.open("rb") as file:
            while chunk := squeezed.unconsumed_tail or file.read(CHUNK):
                digest.update(squeezed.decompress(chunk, CHUNK))
    except (OSError, zlib.error):
        return False
    return squeezed.eof and digest.hexdigest() == path.parent.name + path.name
