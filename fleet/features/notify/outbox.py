"""The notifications of a run, stored before and after they are sent. Only one process sends at a time.

If a process dies while it sends, the notification may or may not have arrived. It is sent again unchanged and with the
same key, so that the receiver can drop the duplicate.
"""

import fcntl
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from fleet.errors import FleetError
from fleet.runs.crash_points import reached

FILE, LOCK = "notifications.sqlite", "notifier.lock"
BUSY_MS = 10_000
TABLE = """
create table if not exists messages (
  id integer primary key, key text not null unique, channel text not null, causes text not null,
  title text not null, text text not null, body text not null,
  state text not null, tries integer not null default 0, at real not null, next_at real not null, why text not null
) strict
"""
MessageState = Literal["waiting", "sending", "sent", "given up"]


@dataclass(frozen=True, slots=True)
class Message:
    """A notification for one channel."""

    id: int
    key: str
    """The idempotency key, by which a receiver can recognize duplicates."""
    channel: str
    causes: tuple[str, ...]
    title: str
    text: str
    body: str
    state: MessageState
    tries: int
    """The number of tries."""
    at: float
    next_at: float
    """The earliest time of the next try."""
    why: str
    """Why the last try failed."""

    @property
    def is_pending(self) -> bool:
        return self.state in {"waiting", "sending"}


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """A new notification. It does not change once it is stored."""

    key: str
    channel: str
    causes: tuple[str, ...]
    title: str
    text: str
    body: str
    at: float


class Outbox:
    """The notifications of the run in this folder."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.path = folder / FILE
        if not (create or self.path.is_file()):
            raise FleetError(f"{folder.name} was started without [notify], so it does not have notifications")
        try:
            with ExitStack() as undo:
                self._db = undo.enter_context(
                    closing(sqlite3.connect(self.path, isolation_level=None, timeout=BUSY_MS / 1000))
                )
                self.path.chmod(0o600)
                self._db.execute("pragma synchronous=full")
                self._db.execute(TABLE)
                undo.pop_all()
        except (sqlite3.Error, OSError) as error:
            raise FleetError(f"{self.path}: {error}") from error

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- reading

    def messages(self) -> list[Message]:
        return [_message(row) for row in self._run("select * from messages order by id")]

    def causes_of(self, channel: str) -> frozenset[str]:
        """Return the causes that have a message on a channel, in any state."""
        rows = self._run("select causes from messages where channel = ?", channel)
        return frozenset(cause for (causes,) in rows for cause in json.loads(causes))

    def pending(self, channel: str) -> Message | None:
        """Return the next message to send on a channel."""
        rows = self._run(
            "select * from messages where channel = ? and state in ('waiting', 'sending') order by id limit 1",
            channel,
        )
        return _message(rows[0]) if rows else None

    # ---- writing

    def add(self, draft: MessageDraft) -> None:
        """Store a message for these causes. No other message will include them."""
        self._run(
            "insert into messages (key, channel, causes, title, text, body, state, at, next_at, why) "
            "values (?, ?, ?, ?, ?, ?, 'waiting', ?, ?, '')",
            *(draft.key, draft.channel, json.dumps(draft.causes), draft.title, draft.text, draft.body),
            *(draft.at, draft.at),
        )
        reached("a notification is intended")

    def begin(self, message: Message) -> None:
        """Mark a message as being sent. From now on it may have arrived."""
        self._run("update messages set state = 'sending', tries = tries + 1 where id = ?", message.id)
        reached("a notification is about to be sent")

    def sent(self, message: Message) -> None:
        reached("a notification was sent and not recorded")
        self._run("update messages set state = 'sent', why = '' where id = ?", message.id)
        reached("a notification was recorded as sent")

    def later(self, message: Message, next_at: float, why: str) -> None:
        self._run("update messages set state = 'waiting', next_at = ?, why = ? where id = ?", next_at, why, message.id)

    def give_up(self, message: Message, why: str) -> None:
        self._run("update messages set state = 'given up', why = ? where id = ?", why, message.id)

    def _run(self, sql: str, *values: object) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise FleetError(f"{self.path}: {error}") from error


def has_outbox(folder: Path) -> bool:
    return (folder / FILE).is_file()


@contextmanager
def sending(folder: Path) -> Iterator[bool]:
    """Lock the notifications of a run during the block. Yield whether this process got the lock."""
    try:
        file = (folder / LOCK).open("a")
    except OSError:  # the folder was removed
        yield False
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _message(row: Sequence[Any]) -> Message:
    id_, key, channel, causes, *others = row
    return Message(id_, key, channel, tuple(json.loads(causes)), *others)
