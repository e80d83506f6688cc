"""The journal of a run: its facts in order, and an inbox for requests. One process writes; any process may read.

SQLite in WAL mode with full sync: once `append` has returned, its facts survive a kill. The writer holds a lock on a
file next to the journal, which the kernel releases when the writer ends for any reason.
"""

import fcntl
import json
import os
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import IO, Any, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from fleet.core.facts.facts import FACT, Fact
from fleet.core.history.evolve import SLICE
from fleet.core.policy.requests import REQUEST, Request
from fleet.errors import FleetError
from fleet.runs.crash_points import reached

SCHEMA = 1
BUSY_MS = 10_000
LOCK_TRIES, LOCK_RETRY_S = 20, 0.01  # a process that only reads the holder has the lock for microseconds
Row = TypeVar("Row")
TABLES = """
create table facts (seq integer primary key, kind text not null, body text not null);
create table inbox (id integer primary key autoincrement, body text not null);
"""


class JournalError(FleetError):
    """The journal can't be read or written."""


class JournalLockedError(JournalError):
    """Another process runs this run."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that runs a run."""

    pid: int
    host: str


@contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise JournalError(f"{path}: {error}", hint=_advice(str(error))) from error
    except sqlite3.DatabaseError as error:
        raise JournalError(f"{path} is damaged ({error})", hint=f"restore {path.parent} from a backup") from error
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}", hint=_advice((error.strerror or "").lower())) from error


def _advice(message: str) -> str:
    if "full" in message or "no space" in message:
        return "free some disk space, then run `fleet resume`"
    if any(words in message for words in ("readonly", "unable to open", "no such file", "permission denied")):
        return "check that the folder exists and is writable, or set FLEET_STATE_DIR to another folder"
    if "locked" not in message:
        return "check the disk and the permissions of the folder"
    return "another process is using it: try again"


def _connect(path: Path, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=busy_ms / 1000)
    try:
        connection.execute("pragma synchronous=full")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("pragma user_version").fetchone()[0]
    if version > SCHEMA:
        raise JournalError(
            f"{path} was written by a newer version of fleet (schema {version}, supported: {SCHEMA})",
            hint="upgrade fleet: pip install --upgrade worktree-fleet, or git pull && make setup in its checkout",
        )
    if version == 0:
        raise JournalError(f"{path} is not a fleet journal")


class Journal:
    """A run's journal, for reading and for requests. Only the holder of the lock may append."""

    def __init__(self, path: Path, *, busy_ms: int = BUSY_MS) -> None:
        self.path = path
        with _readable_errors(path):
            if not path.is_file():
                raise JournalError(f"no run at {path}", hint="run `fleet runs` to list them")
            with ExitStack() as undo:
                self._db = undo.enter_context(closing(_connect(path, busy_ms)))
                _check_schema(self._db, path)
                undo.pop_all()
        self._version = -1

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
        """The facts after number `after`, with their numbers; at most `limit`, unless that is negative."""
        rows = self._query("select seq, body from facts where seq > ? order by seq limit ?", after, limit)
        parse = FACT.validator.validate_json  # takes four fifths of the time of `FACT.validate_json`
        try:
            return [(seq, parse(body)) for seq, body in rows]
        except ValidationError:  # find the invalid fact
            return [(seq, self._parsed(FACT, f"fact {seq}", body)) for seq, body in rows]

    def each(self) -> Iterator[tuple[int, Fact]]:
        """All facts up to now, in slices: a long journal takes a gigabyte in one piece."""
        seq, last = 0, self.last
        while seq < last and (new := self.facts(seq, SLICE)):
            yield from new
            seq = new[-1][0]

    def facts_of(self, *kinds: str) -> list[Fact]:
        """The facts of these kinds. Does not parse others, so it is fast enough for completion."""
        marks = ", ".join("?" * len(kinds))
        rows = self._query(f"select seq, body from facts where kind in ({marks}) order by seq", *kinds)  # noqa: S608
        return [self._parsed(FACT, f"fact {seq}", body) for seq, body in rows]

    @property
    def last(self) -> int:
        """The number of the last fact, or 0."""
        return int(self._query("select max(seq) from facts")[0][0] or 0)

    @property
    def length(self) -> int:
        """The number of facts."""
        return int(self._query("select count(*) from facts")[0][0])

    def _query(self, sql: str, *values: object) -> list[Any]:
        with _readable_errors(self.path):
            return self._db.execute(sql, values).fetchall()

    def _parsed(self, shape: TypeAdapter[Row], what: str, body: str) -> Row:
        try:
            return shape.validate_json(body)
        except ValidationError as error:
            raise JournalError(
                f"{self.path}: this version of fleet can't read {what} ({error.errors()[0]['msg']})",
                hint="upgrade fleet",
            ) from error

    def changed(self) -> bool:
        """Whether another connection has written since the last call. Takes microseconds."""
        [(version,)] = self._query("pragma data_version")
        before, self._version = self._version, int(version)
        return self._version != before

    # ---- requests

    def ask(self, request: Request) -> None:
        """Put a request into the inbox."""
        self._query("insert into inbox (body) values (?)", request.model_dump_json())

    def requests(self) -> list[tuple[int, Request]]:
        rows = self._query("select id, body from inbox order by id")
        return [(id_, self._parsed(REQUEST, f"request {id_}", body)) for id_, body in rows]

    # ---- writing, only for the holder of the lock

    def append(self, facts: Sequence[Fact], *, taken: Iterable[int] = ()) -> None:
        """Write facts and remove the requests that they answer. Both are on disk when this returns."""
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


# ---- the lock -------------------------------------------------------------------------------------------------------


@contextmanager
def engine_lock(path: Path) -> Iterator[None]:
    """Hold the engine's lock of the journal at `path`. Raises `JournalLockedError` with the process that holds it."""
    with _lock(path):  # the lock does not explain errors inside the block
        yield


def _lock(path: Path) -> IO[str]:
    lock = _lock_path(path)
    with _readable_errors(lock), ExitStack() as undo:
        file = undo.enter_context(lock.open("a+"))
        lock.chmod(0o600)
        if not _lock_soon(file):
            message, hint = locked_message(path.parent.name, _read_holder(file))
            raise JournalLockedError(message, hint=hint)
        file.seek(0)
        file.truncate()
        json.dump({"pid": os.getpid(), "host": socket.gethostname()}, file)
        file.flush()
        undo.pop_all()
        return file


def _lock_soon(file: IO[str]) -> bool:
    """Take the lock. Waits for a process that only reads the holder."""
    for _ in range(LOCK_TRIES):
        if _try_lock(file, fcntl.LOCK_EX):
            return True
        sleep(LOCK_RETRY_S)
    return False


def holder(path: Path) -> Holder | None:
    """The process that runs the run with this journal, or None."""
    try:
        with _lock_path(path).open("r+") as file:
            return None if _try_lock(file, fcntl.LOCK_SH) else _read_holder(file)
    except OSError:
        return None


def _lock_path(path: Path) -> Path:
    return path.with_name("engine.lock")


def _try_lock(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(file: IO[str]) -> Holder:
    file.seek(0)
    try:
        written = json.loads(file.read())
        return Holder(pid=int(written["pid"]), host=str(written["host"]))
    except (ValueError, KeyError, TypeError):  # the holder has not written this yet
        return Holder(pid=0, host="")


def locked_message(run: str, by: Holder) -> tuple[str, str]:
    """Return the message and the hint for a run that another process runs."""
    message = f"{run} is already running in process {by.pid} on {by.host}"
    return message, f"follow it with `fleet watch {run}`, or stop it with `fleet cancel {run}`"
