"""The journal of a run: facts in the order they became true, and an inbox for requests. One writer; anyone may read.

SQLite in WAL mode with full sync: what `append` returned from survives a kill. The writer holds a lock on a file beside
the journal, which the kernel gives back however the writer dies.
"""

import fcntl
import json
import os
import socket
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import IO, Any, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from fleet.core.evolve import evolve
from fleet.core.facts import FACT, Fact
from fleet.core.requests import REQUEST, Request
from fleet.core.state import RunState
from fleet.points import reached
from fleet.ports import FleetError

SCHEMA = 1
BUSY_MS = 10_000
LOOKS, LOOK_S = 20, 0.01  # whoever only looks who runs a run holds its lock for microseconds
Row = TypeVar("Row")
TABLES = """
create table facts (seq integer primary key, kind text not null, body text not null);
create table inbox (id integer primary key autoincrement, body text not null);
"""


class JournalError(FleetError):
    """The journal can't be read or written; the message says what to do."""


class JournalLockedError(JournalError):
    """Another process runs this run."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who runs a run."""

    pid: int
    host: str


@contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise JournalError(f"{path}: {error}; {_advice(str(error))}") from error
    except sqlite3.DatabaseError as error:
        raise JournalError(f"{path} is damaged ({error}); restore it from a backup of {path.parent}") from error
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}; {_advice((error.strerror or '').lower())}") from error


def _advice(message: str) -> str:
    if "full" in message or "no space" in message:
        return "free some space, then `fleet resume`"
    if any(words in message for words in ("readonly", "unable to open", "no such file", "permission denied")):
        return "check that the folder exists and is writable, or choose another with FLEET_STATE_DIR"
    if "locked" not in message:
        return "check the disk and the folder's permissions"
    return "another process keeps it busy; try again"


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
    connection.execute("pragma synchronous=full")
    return connection


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("pragma user_version").fetchone()[0]
    if version > SCHEMA:
        raise JournalError(
            f"{path} was written by a newer fleet (schema {version}; this one knows {SCHEMA}): upgrade with "
            "`pip install --upgrade worktree-fleet`"
        )
    if version == 0:
        raise JournalError(f"{path} is no journal of fleet's")


class Journal:
    """A run's journal, for reading and for requests. `writer` makes it the one that writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _readable_errors(path):
            if not path.is_file():
                raise JournalError(f"{path}: no such run; `fleet runs` lists them")
            self._db = _connect(path)
            _check_schema(self._db, path)
        self._seen = -1

    @classmethod
    def create(cls, path: Path) -> "Journal":
        with _readable_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with closing(_connect(path)) as db:
                db.execute("pragma journal_mode=wal")
                db.executescript(f"begin; {TABLES} pragma user_version={SCHEMA}; commit;")
        return cls(path)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- reading

    def facts(self, after: int = 0, limit: int = -1) -> list[tuple[int, Fact]]:
        """The facts after number `after`, with their numbers; at most `limit` of them, where that is not negative."""
        wanted = "select seq, body from facts where seq > ? order by seq limit ?"
        with _readable_errors(self.path):
            rows = self._db.execute(wanted, (after, limit)).fetchall()
        return [(seq, self._parsed(FACT, f"fact {seq}", body)) for seq, body in rows]

    def _parsed(self, shape: TypeAdapter[Row], what: str, body: str) -> Row:
        try:
            return shape.validate_json(body)
        except ValidationError as error:
            raise JournalError(
                f"{self.path}: {what} is unknown to this version ({error.errors()[0]['msg']}); upgrade fleet"
            ) from error

    def changed(self) -> bool:
        """Whether another connection wrote since this was last asked. Costs microseconds."""
        with _readable_errors(self.path):
            version = self._db.execute("pragma data_version").fetchone()[0]
        self._seen, before = version, self._seen
        return bool(version != before)

    # ---- requests

    def ask(self, request: Request) -> None:
        """Put a request into the inbox."""
        with _readable_errors(self.path):
            self._db.execute("insert into inbox (body) values (?)", (request.model_dump_json(),))

    def requests(self) -> list[tuple[int, Request]]:
        with _readable_errors(self.path):
            rows = self._db.execute("select id, body from inbox order by id").fetchall()
        return [(id_, self._parsed(REQUEST, f"request {id_}", body)) for id_, body in rows]

    # ---- writing: only the holder of the lock may

    def append(self, facts: Sequence[Fact], *, taken: Iterable[int] = ()) -> None:
        """Write facts, and forget the requests they answer, at once. When this returns, both are on disk."""
        rows = [(fact.kind, fact.model_dump_json()) for fact in facts]
        reached("facts are about to be written")
        with _readable_errors(self.path):
            self._db.execute("begin immediate")
            try:
                self._db.executemany("insert into facts (kind, body) values (?, ?)", rows)
                self._db.executemany("delete from inbox where id = ?", [(id_,) for id_ in taken])
                reached("facts are written, not committed")
                self._db.execute("commit")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("rollback")
                raise
        reached("facts are committed")


def replay(facts: Iterable[tuple[int, Fact]], state: RunState | None = None) -> RunState | None:
    """The state after `facts`."""
    for _, fact in facts:
        state = evolve(state, fact)
    return state


class View:
    """A client's picture of a run: follows the journal from any process."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.state: RunState | None = None
        self.seq = 0

    def refresh(self, on_fact: Callable[[RunState, Fact], None] | None = None) -> bool:
        """Read what is new; whether anything was. `on_fact` sees each fact with the state after it."""
        if not self.journal.changed() and self.seq:
            return False
        new = self.journal.facts(self.seq)
        for seq, fact in new:
            self.state = evolve(self.state, fact)
            self.seq = seq
            if on_fact is not None:
                on_fact(self.state, fact)
        return bool(new)


# ---- the lock -------------------------------------------------------------------------------------------------------


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the engine's lock beside the journal at `path`, or say who does."""
    with _locked(path):  # what fails inside the block is not the lock's to explain
        yield


def _locked(path: Path) -> IO[str]:
    lock = _lock_file(path)
    try:
        with ExitStack() as undo:
            file = undo.enter_context(lock.open("a+"))
            lock.chmod(0o600)
            if not _lock_soon(file):
                raise JournalLockedError(_held_message(path, _read_holder(file)))
            file.seek(0)
            file.truncate()
            json.dump({"pid": os.getpid(), "host": socket.gethostname()}, file)
            file.flush()
            undo.pop_all()
            return file
    except OSError as error:
        raise JournalError(f"{lock}: {error.strerror}; {_advice((error.strerror or '').lower())}") from error


def _lock_soon(file: IO[str]) -> bool:
    """Take the lock, if nothing but a glance is in the way."""
    for _ in range(LOOKS):
        if _try_lock(file, fcntl.LOCK_EX):
            return True
        sleep(LOOK_S)
    return False


def holder(path: Path) -> Holder | None:
    """Who runs the run whose journal is at `path`; None when nobody does."""
    try:
        with _lock_file(path).open("r+") as file:
            return None if _try_lock(file, fcntl.LOCK_SH) else _read_holder(file)
    except OSError:
        return None


def _lock_file(path: Path) -> Path:
    return path.with_name("engine.lock")


def _try_lock(file: IO[Any], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(file: IO[Any]) -> Holder:
    file.seek(0)
    try:
        said = json.loads(file.read())
        return Holder(pid=int(said["pid"]), host=str(said["host"]))
    except (ValueError, KeyError, TypeError):  # it has the lock and is about to say so
        return Holder(pid=0, host="")


def _held_message(path: Path, who: Holder) -> str:
    run = path.parent.name
    return (
        f"{run} is run by process {who.pid} on {who.host} already; follow it with `fleet status {run}`, "
        f"or stop it with `fleet cancel {run}`"
    )
