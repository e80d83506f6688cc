"""Git's objects in process: trees and commits read through one long-lived `cat-file`, new objects written as files.

Starting git costs more than its work for a change of five files. Here the cost depends only on the change. All methods
block, and run in the few threads of `Objects.run`.

Writing follows git: a temporary file beside its destination, then a rename, so that a partial object is never visible.
Existing objects are not touched. Objects are not synced to the disk one by one, and git does not do that either
(`core.fsync` is `committed,-loose-object` by default). A kill loses no data. A power cut can empty the newest objects.
Then a ref to them is unreadable, and a resumed run treats that work as not done.

Ids are SHA-1 or SHA-256, as in the repository. Content is written unchanged, without filters. `write_tree.py` decides
whether that is correct.
"""

import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from fleet.core.base.ids import Sha
from fleet.runs.crash_points import reached
from worktrees.base.process import effect_error
from worktrees.git.object_format import (
    EMPTY,
    ID,
    REF,
    SHA1_DIGITS,
    SHA256_DIGITS,
    TREE,
    Commit,
    Node,
    Person,
    Tree,
    format_tree,
    node_id,
    object_id,
    parse_commit,
    parse_tree,
    signed_now,
)
from worktrees.git.program import PATIENCE, CommandTimeouts, Coprocess, CoprocessError

SHA256 = re.compile(rb"(?im)^\s*objectformat\s*=\s*sha256\s*$")
AT_ONCE = 2  # threads: more of them only wait for the interpreter lock
LARGEST = 64 * 1024 * 1024  # limit for a tree or a commit
CACHED_ENTRIES = 500_000  # of trees, about 100 MB. Then the cache is emptied
CACHED_COMMITS = 20_000
AHEAD = 200  # objects per request: their names are far smaller than a pipe buffer
FASTEST = 1  # zlib level: a third of the time of git's default for 15 % more bytes
NAME = re.compile(f"{ID}|{REF}")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object with its full content."""

    id: Sha
    kind: str
    content: bytes


class Objects:
    """The objects of one repository."""

    def __init__(self, git_dir: Path, patience: CommandTimeouts = PATIENCE) -> None:
        self._config = git_dir / "config"
        self._folder = git_dir / "objects"
        self._program = Coprocess(git_dir, "cat-file", "--batch-command", "--buffer", patience=patience)
        self._trees: dict[Sha, Tree] = {}
        self._cached_entries = 0
        self._commits: dict[Sha, Commit] = {}
        self._numbers = count()
        self._digits = 0
        self._threads = CapacityLimiter(AT_ONCE)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run blocking work with these objects in one of their threads."""
        return await to_thread.run_sync(work, limiter=self._threads)

    def close(self) -> None:
        self._program.close()

    # ---- reading

    def find(self, name: str) -> StoredObject | None:
        """Return the object of an id or a ref. Raises `EffectError` if git does not answer."""
        if NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not an id or a ref")
        return self._read([name])[0]

    def _read(self, names: Sequence[str]) -> list[StoredObject | None]:
        try:
            return list(self._stream(names))
        except CoprocessError:  # killed while it was idle, or in the middle: reading twice is harmless
            return list(self._stream(names))

    def _stream(
        self, names: Sequence[str], meanwhile: Callable[[], None] | None = None
    ) -> Iterator[StoredObject | None]:
        """Request all objects together: waiting for a pipe costs more than the object."""
        with self._program.conversation() as program:
            program.send(_questions(b"contents", names))
            if meanwhile is not None:
                meanwhile()
            for name in names:
                header = program.read_line().split(b" ")
                if len(header) != 3:  # "<name> missing"  # noqa: PLR2004
                    yield None
                    continue
                id_, kind, size = Sha(header[0].decode()), header[1].decode(), int(header[2])
                if size > LARGEST:
                    raise effect_error(f"{name} has {size} bytes, and the limit is {LARGEST}")
                yield StoredObject(id_, kind, program.read(size + 1)[:-1])

    def missing(self, ids: Sequence[Sha]) -> list[Sha]:
        """Return the ids that the repository does not have. Does not read contents. Raises `EffectError`."""
        absent: list[Sha] = []
        for start in range(0, len(ids), AHEAD):
            batch = ids[start : start + AHEAD]
            try:
                absent += self._absent(batch)
            except CoprocessError:  # it died or did not answer
                absent += self._absent(batch)
        return absent

    def sizes(self, ids: Sequence[Sha]) -> list[int]:
        """Return the lengths of contents without reading them. Raises `EffectError` if one is missing."""
        found: list[int] = []
        for start in range(0, len(ids), AHEAD):
            batch = ids[start : start + AHEAD]
            try:
                found += self._sizes(batch)
            except CoprocessError:  # it died or did not answer
                found += self._sizes(batch)
        return found

    def _sizes(self, ids: Sequence[Sha]) -> list[int]:
        with self._program.conversation() as program:
            program.send(_questions(b"info", ids))
            answers = [program.read_line().split(b" ") for _ in ids]
        if not all(answer[-1].isdigit() for answer in answers):  # "<name> missing"
            raise effect_error("the store lacks an object")
        return [int(answer[-1]) for answer in answers]

    def all(self, ids: Sequence[Sha]) -> list[StoredObject]:
        """Read objects in order, all into memory. Raises `EffectError` if one is missing."""
        found = [stored for start in range(0, len(ids), AHEAD) for stored in self._read(ids[start : start + AHEAD])]
        if None in found:
            raise effect_error("the store lacks an object")
        return [stored for stored in found if stored is not None]

    def _absent(self, ids: Sequence[Sha]) -> list[Sha]:
        with self._program.conversation() as program:
            program.send(_questions(b"info", ids))
            return [id_ for id_ in ids if program.read_line().endswith(b" missing")]

    def commit(self, id_: Sha) -> Commit:
        commit = self._commits.get(id_)
        if commit is None:
            stored = _require(self.find(id_), "commit", id_)
            commit = self._cache_commit(stored.id, stored.content)
        return commit

    def cached_commit(self, id_: Sha) -> Commit | None:
        """Return a commit that was recently read or written. Does not block."""
        return self._commits.get(id_)

    def _cache_commit(self, id_: Sha, content: bytes) -> Commit:
        if len(self._commits) >= CACHED_COMMITS:
            self._commits.clear()
        self._commits[id_] = commit = parse_commit(content)
        return commit

    def tree(self, id_: Sha) -> Tree:
        tree = self._trees.get(id_)
        if tree is None:
            stored = _require(self.find(id_), "tree", id_)
            tree = self._cache_tree(id_, parse_tree(stored.content, len(id_) // 2))
        return tree

    def _cache_tree(self, id_: Sha, tree: Tree) -> Tree:
        if self._cached_entries > CACHED_ENTRIES:
            self._trees.clear()
            self._cached_entries = 0
        self._trees[id_] = tree
        self._cached_entries += len(tree)
        return tree

    def tree_at(self, node: Node | None) -> Tree:
        """Return the folder of an entry, or an empty one if the entry is not a folder."""
        return self.tree(node_id(node)) if node is not None and node[0] == TREE else EMPTY

    def tree_of(self, id_: Sha) -> Sha:
        """Return the tree of a commit, or the tree with that id. Raises `EffectError`."""
        commit = self._commits.get(id_)
        if commit is not None:
            return commit.tree
        if self.is_cached(id_):
            return id_
        stored = self.find(id_)
        if stored is not None and stored.kind == "tree":
            return stored.id
        stored = _require(stored, "commit", id_)
        return self._cache_commit(stored.id, stored.content).tree

    def is_cached(self, tree: Sha) -> bool:
        return tree in self._trees

    def blob(self, id_: Sha) -> bytes:
        return _require(self.find(id_), "blob", id_).content

    def blobs(self, ids: Sequence[Sha], meanwhile: Callable[[], None] | None = None) -> Iterator[bytes]:
        """Read the contents of many blobs in order, one at a time in memory. Raises `EffectError`.

        `meanwhile` is called after the first blobs are requested.
        """
        for start in range(0, len(ids), AHEAD):
            batch, done = ids[start : start + AHEAD], 0
            try:
                for id_, stored in zip(batch, self._stream(batch, None if start else meanwhile), strict=True):
                    yield _require(stored, "blob", id_).content
                    done += 1
            except CoprocessError:  # it died or did not answer
                for id_, stored in zip(batch[done:], self._stream(batch[done:]), strict=True):
                    yield _require(stored, "blob", id_).content

    # ---- writing

    def put_tree(self, tree: Tree) -> Sha:
        id_ = self.put("tree", format_tree(tree))
        self._cache_tree(id_, tree)
        return id_

    def put_commit(self, tree: Sha, parent: Sha, *, author: bytes, committer: Person, message: bytes) -> Sha:
        head = f"tree {tree}\nparent {parent}\n".encode()
        persons = b"author %s\ncommitter %s\n" % (author, signed_now(committer))
        content = head + persons + b"\n" + message.strip() + b"\n"
        id_ = self.put("commit", content)
        self._cache_commit(id_, content)
        return id_

    def put(self, kind: str, content: bytes) -> Sha:
        """Write an object unless it exists. Raises `EffectError` on failure."""
        if not self._digits:
            is_sha256 = self._config.exists() and SHA256.search(self._config.read_bytes()) is not None
            self._digits = SHA256_DIGITS if is_sha256 else SHA1_DIGITS
        id_ = object_id(kind, content, digits=self._digits)
        goal = f"{self._folder}/{id_[:2]}/{id_[2:]}"
        try:
            if not _is_written(goal):
                self._write(goal, b"%b %d\0" % (kind.encode(), len(content)), content)
        except OSError as error:
            raise effect_error(f"can't write an object: {error}") from error
        return id_

    def _write(self, goal: str, head: bytes, content: bytes) -> None:
        compressor = zlib.compressobj(FASTEST)
        unwritten = memoryview(compressor.compress(head) + compressor.compress(content) + compressor.flush())
        folder = os.path.dirname(goal)  # noqa: PTH120 - five times as fast as a Path, and this is the inner loop
        temporary = f"{folder}/tmp_obj_{os.getpid()}_{next(self._numbers)}"  # noqa: S108 - `git prune` knows the name
        try:
            fd = _create(temporary)
        except FileNotFoundError:
            Path(folder).mkdir(exist_ok=True)
            fd = _create(temporary)
        try:
            try:
                while unwritten:
                    unwritten = unwritten[os.write(fd, unwritten) :]
            finally:
                os.close(fd)
            reached("an object is written, and not in its place")
            os.rename(temporary, goal)  # noqa: PTH104
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise


def _questions(verb: bytes, names: Sequence[str]) -> bytes:
    return b"".join([b"%b %b\n" % (verb, name.encode()) for name in names]) + b"flush\n"


def _require(stored: StoredObject | None, kind: str, name: str) -> StoredObject:
    if stored is None or stored.kind != kind:
        raise effect_error(f"no {kind} {name} in the store")
    return stored


def _is_written(goal: str) -> bool:
    """Whether the object exists. A power cut can leave an empty file, which is written again."""
    try:
        return os.stat(goal).st_size > 0  # noqa: PTH116
    except FileNotFoundError:
        return False


def _create(temporary: str) -> int:
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
