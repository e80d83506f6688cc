"""Git's objects in process: trees and commits read through one long-lived `cat-file`, new objects written as files.

A spawned git costs more than the work it does for a change of five files; here such a change costs what it changed.
Everything blocks, and is meant for the few threads of `Objects.run`.

Writing follows git: a temporary file beside its goal, then a rename, so nobody ever sees half an object; what is there
already is left alone. Objects are not synced to the disk one by one, as git itself does not (`core.fsync` is
`committed,-loose-object` unless told otherwise): a kill loses nothing, a power cut can empty the newest objects, and
what a ref then names can't be read, which a resumed run takes for work not done.

Only for repositories whose ids are SHA-1. Content goes in as it is, without filters; whether that is right is decided
in `changes.py`.
"""

import hashlib
import os
import re
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from fleet.core.facts import Failure
from fleet.core.ids import Sha
from fleet.points import reached
from fleet.ports import Broken
from worktrees.message import Person
from worktrees.service import Gone, Service

TREE = b"40000"
ENTRY = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)
AROUND = 22  # bytes of an entry besides its mode and its name
AT_ONCE = 2  # threads; more only take turns at the interpreter
LARGEST = 64 * 1024 * 1024  # of a tree or a commit that is read
KEPT_ENTRIES = 500_000  # of trees in memory, about 100 MB
KEPT_PARENTS = 100_000
KEPT_COMMITS = 10_000
AHEAD = 200  # objects asked for at once: their names are far less than a pipe holds
FASTEST = 1  # zlib's level: a third of the time of git's own for 15 % more bytes
NAMED = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}|refs/[^\s:^~?*\[\\\x00-\x1f\x7f]+")
ODD_ENDS = "".join(map(chr, range(33))) + ".,:;<>\"\\'"  # what git strips from a person's name


class Missing(Broken):
    """The repository has no such object."""

    def __init__(self, kind: str, name: str) -> None:
        self.id = name
        super().__init__(Failure(kind="infrastructure", summary=f"the store has no {kind} {name}"))


Node = tuple[bytes, bytes]
"""The mode of an entry and the id it names, as a tree stores them."""
Tree = Mapping[bytes, Node]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Found:
    """An object, whole."""

    id: Sha
    kind: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, as it is written."""

    tree: Sha
    parents: tuple[Sha, ...]
    author: bytes
    message: bytes
    plain: bool
    """Whether that is all there is to it: no signature, no encoding of its own."""


@dataclass(slots=True)
class _Trees:
    """The trees used last."""

    room: int = KEPT_ENTRIES
    _kept: OrderedDict[Sha, Tree] = field(default_factory=OrderedDict)
    _turn: Lock = field(default_factory=Lock)

    def get(self, id_: Sha) -> Tree | None:
        with self._turn:
            tree = self._kept.get(id_)
            if tree is not None:
                self._kept.move_to_end(id_)
            return tree

    def keep(self, id_: Sha, tree: Tree) -> None:
        with self._turn:
            if id_ in self._kept:
                return
            self._kept[id_] = tree
            self.room -= len(tree) + 1
            while self.room < 0 and len(self._kept) > 1:
                _, old = self._kept.popitem(last=False)
                self.room += len(old) + 1


def _nothing() -> None:
    """Nobody has anything to do meanwhile."""


class Objects:
    """The objects of one repository."""

    def __init__(self, git_dir: Path) -> None:
        self.by_git: str | None = None
        """Why this repository's objects must be left to the git program, where they must."""
        self._folder = git_dir / "objects"
        self._cat = Service(git_dir, "cat-file", "--batch-command", "--buffer")
        self._list = Service(git_dir, "cat-file", "--batch-check")
        self._trees = _Trees()
        self._parents: dict[Sha, Sha | None] = {}
        self._commits: dict[Sha, Commit] = {}
        self._names = count()
        self._threads = CapacityLimiter(AT_ONCE)

    async def run(self, work: Callable[[], Answer]) -> Answer:
        """Do blocking work with these objects in a thread of theirs."""
        return await to_thread.run_sync(work, limiter=self._threads)

    def close(self) -> None:
        self._cat.close()
        self._list.close()

    # ---- reading

    def find(self, name: str) -> Found | None:
        """The object that an id or a ref names. Raises `Broken` when git can't be asked."""
        if NAMED.fullmatch(name) is None:
            raise ValueError(f"{name!r} is neither an id nor a ref")
        [found] = self._found([name])
        return found

    def _found(self, names: Sequence[str]) -> list[Found | None]:
        try:
            return list(self._ask(names))
        except Gone:  # killed while it idled, or in the middle: reading twice harms nobody
            try:
                return list(self._ask(names))
            except Gone as gone:
                raise _broken(f"git cat-file does not answer: {gone}") from gone

    def _ask(self, names: Sequence[str], meanwhile: Callable[[], None] = _nothing) -> Iterator[Found | None]:
        """All are asked for at once, and answered at once: a pipe that is waited for costs more than the object."""
        with self._cat.conversation() as cat:
            cat.send(b"".join([b"contents %b\n" % name.encode() for name in names]) + b"flush\n")
            meanwhile()
            for name in names:
                answer = cat.line().split(b" ")
                if len(answer) != 3:  # "<name> missing"  # noqa: PLR2004
                    yield None
                    continue
                id_, kind, size = answer[0].decode(), answer[1].decode(), int(answer[2])
                if size > LARGEST:
                    raise _broken(f"{name} has {size} bytes; at most {LARGEST} are read")
                yield Found(id_, kind, cat.take(size + 1)[:-1])

    def missing(self, ids: Sequence[Sha]) -> list[Sha]:
        """Those that the repository does not have. Their contents are not looked at. Raises `Broken`."""
        absent: list[Sha] = []
        try:
            for at in range(0, len(ids), AHEAD):
                some = ids[at : at + AHEAD]
                with self._list.conversation() as listing:
                    listing.send(b"".join(id_.encode() + b"\n" for id_ in some))
                    absent += [id_ for id_ in some if listing.line().endswith(b" missing")]
        except Gone as gone:
            raise _broken(f"git cat-file does not answer: {gone}") from gone
        return absent

    def commit(self, name: str) -> Commit:
        known = self._commits.get(name)
        if known is not None:
            return known
        found = self._must(name, "commit")
        return self._keep(found.id, found.content)

    def known(self, id_: Sha) -> Commit | None:
        """A commit that was read or written lately: this one does not block."""
        return self._commits.get(id_)

    def _keep(self, id_: Sha, content: bytes) -> Commit:
        if len(self._commits) >= KEPT_COMMITS:
            self._commits.clear()
        self._commits[id_] = commit = _parse_commit(content)
        return commit

    def only_parent(self, id_: Sha) -> Sha | None:
        """The parent of a commit that has one; None for a merge and for the first commit of all."""
        if id_ not in self._parents:
            if len(self._parents) >= KEPT_PARENTS:
                self._parents.clear()
            parents = self.commit(id_).parents
            self._parents[id_] = parents[0] if len(parents) == 1 else None
        return self._parents[id_]

    def tree(self, id_: Sha) -> Tree:
        tree = self._trees.get(id_)
        if tree is None:
            tree = parse_tree(self._must(id_, "tree").content)
            self._trees.keep(id_, tree)
        return tree

    def expect_trees(self, ids: Iterable[Sha]) -> None:
        """Read these together, ahead of the time when each is asked for."""
        unknown = [id_ for id_ in dict.fromkeys(ids) if self._trees.get(id_) is None]
        for at in range(0, len(unknown), AHEAD):
            some = unknown[at : at + AHEAD]
            for id_, found in zip(some, self._found(some), strict=True):
                self._trees.keep(id_, parse_tree(_as(found, "tree", id_).content))

    def blob(self, id_: Sha) -> bytes:
        return self._must(id_, "blob").content

    def blobs(self, ids: Sequence[Sha], meanwhile: Callable[[], None] = _nothing) -> Iterator[bytes]:
        """The contents of many, in order, one at a time in memory. Raises `Broken`.

        `meanwhile` is done as soon as the first of them are asked for.
        """
        try:
            for at in range(0, len(ids), AHEAD):
                some = ids[at : at + AHEAD]
                for id_, found in zip(some, self._ask(some, _nothing if at else meanwhile), strict=True):
                    yield _as(found, "blob", id_).content
        except Gone as gone:
            raise _broken(f"git cat-file does not answer: {gone}") from gone

    def _must(self, name: str, kind: str) -> Found:
        return _as(self.find(name), kind, name)

    # ---- writing

    def put_tree(self, tree: Tree) -> Sha:
        id_ = self.put("tree", format_tree(tree))
        self._trees.keep(id_, tree)
        return id_

    def put_commit(self, tree: Sha, parent: Sha, *, author: bytes, committer: Person, message: bytes) -> Sha:
        lines = (f"tree {tree}", f"parent {parent}")
        head = "".join(f"{line}\n" for line in lines).encode()
        who = b"author %s\ncommitter %s\n" % (author, signed_now(committer))
        content = head + who + b"\n" + message.strip() + b"\n"
        id_ = self.put("commit", content)
        self._keep(id_, content)
        return id_

    def put(self, kind: str, content: bytes) -> Sha:
        """Write an object, unless it is there. Raises `Broken` where it can't be written."""
        head = f"{kind} {len(content)}\0".encode()
        digest = hashlib.sha1(head, usedforsecurity=False)
        digest.update(content)
        id_ = digest.hexdigest()
        goal = f"{self._folder}/{id_[:2]}/{id_[2:]}"
        try:
            if not _is_there(goal):
                self._write(goal, head, content)
        except OSError as error:
            raise _broken(f"an object can't be written: {error}") from error
        return id_

    def _write(self, goal: str, head: bytes, content: bytes) -> None:
        squeeze = zlib.compressobj(FASTEST)
        packed = squeeze.compress(head) + squeeze.compress(content) + squeeze.flush()
        folder = os.path.dirname(goal)  # noqa: PTH120 - five times as fast as a Path, and this is the inner loop
        temporary = f"{folder}/tmp_obj_{os.getpid()}_{next(self._names)}"  # noqa: S108 - `git prune` knows the name
        try:
            fd = _create(temporary)
        except FileNotFoundError:
            Path(folder).mkdir(exist_ok=True)
            fd = _create(temporary)
        try:
            try:
                view = memoryview(packed)
                while view:
                    view = view[os.write(fd, view) :]
            finally:
                os.close(fd)
            reached("an object is written, and not in its place")
            os.rename(temporary, goal)  # noqa: PTH104
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise


def parse_tree(content: bytes) -> dict[bytes, Node]:
    """The entries of a tree by name. Raises `ValueError` where that is none."""
    entries = ENTRY.findall(content)
    if sum([len(mode) + len(name) for mode, name, _ in entries]) + AROUND * len(entries) != len(content):
        raise ValueError("this is no tree")  # something lies between its entries
    return {name: (mode, id_) for mode, name, id_ in entries}


def format_tree(tree: Tree) -> bytes:
    """A tree as git stores it: folders sort as if their name ended with a slash."""
    entries = [(name + b"/" if mode == TREE else name, mode, name, id_) for name, (mode, id_) in tree.items()]
    entries.sort()
    return b"".join([b"%b %b\0%b" % (mode, name, id_) for _, mode, name, id_ in entries])


def signed(person: Person, date: str) -> bytes:
    """A person and a date, as commits name them."""
    name, email = (re.sub(r"[<>\n\0]", "", part.strip(ODD_ENDS)) for part in (person.name, person.email))
    return f"{name} <{email}> {date}".encode()


def signed_now(person: Person) -> bytes:
    now = int(time.time())
    minutes = time.localtime(now).tm_gmtoff // 60
    hours, rest = divmod(abs(minutes), 60)
    return signed(person, f"{now} {'-' if minutes < 0 else '+'}{hours:02}{rest:02}")


def _as(found: Found | None, kind: str, name: str) -> Found:
    if found is None or found.kind != kind:
        raise Missing(kind, name)
    return found


def _parse_commit(content: bytes) -> Commit:
    head, _, message = content.partition(b"\n\n")
    tree, author, parents, plain = "", b"", list[Sha](), True
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        match key:
            case b"tree":
                tree = value.decode("ascii")
            case b"parent":
                parents.append(value.decode("ascii"))
            case b"author":
                author = value
            case b"committer":
                pass
            case _:
                plain = False
    return Commit(tree, tuple(parents), author, message, plain)


def _is_there(goal: str) -> bool:
    """An empty file is what a power cut leaves of an object; it is written again."""
    try:
        return os.stat(goal).st_size > 0  # noqa: PTH116
    except FileNotFoundError:
        return False


def _create(temporary: str) -> int:
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)


def _broken(summary: str) -> Broken:
    return Broken(Failure(kind="infrastructure", summary=summary))
