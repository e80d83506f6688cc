"""What is known of tending one pull request, beside the run that opened it: small, and on disk before anything is done.

A round names what it answers and the run that does the work; that run's journal has the rest. Two locks: one for the
process that tends, and one that its calls to the forge keep as long as any of them lives, even if that process was
killed. Who takes over waits for the second, and then reads what the forge has.
"""

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import fail_after, sleep
from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.app.tending.messages import answer_key
from fleet.errors import FleetError, UsageError
from fleet.runs.crash_points import reached

CALLS_S, POLL_S = 180.0, 0.05  # how long a call of a killed process may take to end; longer than any call may take


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class AskedThread(_Kept):
    """A thread that a round answers."""

    thread: str
    comment: str
    subtask: str
    """Of the round's run."""

    @property
    def key(self) -> str:
        """What its answer is marked with."""
        return answer_key(self.comment)


class Round(_Kept):
    """One piece of work on a pull request."""

    number: int
    run: str
    head: str
    """The commit that it began from."""
    threads: tuple[AskedThread, ...] = ()
    checks: tuple[str, ...] = ()
    pushing: str | None = None
    """What is to be the head, before it is pushed."""
    pushed: str | None = None
    """What was pushed, once the remote has it."""
    onto: str | None = None
    """The head that it was put on."""
    dropped: str | None = None
    """Why nothing of it is used: a person replaced the commits that it was made on."""
    unfit: str | None = None
    """Why its commits could not be put on what others pushed meanwhile."""
    dollars: float = 0.0
    """What it cost, once it is done."""
    is_done: bool = False


class Record(_Kept):
    """Everything that is kept of one pull request."""

    pull: str
    rounds: tuple[Round, ...] = ()
    posting: str | None = None
    """The key of the comment that is about to be posted."""

    @property
    def open_round(self) -> Round | None:
        return self.rounds[-1] if self.rounds and not self.rounds[-1].is_done else None

    def with_round(self, changed: Round) -> "Record":
        others = tuple(each for each in self.rounds if each.number != changed.number)
        return self.model_copy(update={"rounds": (*others, changed)})

    def without_round(self, number: int) -> "Record":
        return self.model_copy(update={"rounds": tuple(each for each in self.rounds if each.number != number)})


@dataclass(frozen=True, slots=True)
class RecordFile:
    """Where a record is."""

    folder: Path
    number: int

    @property
    def path(self) -> Path:
        return self.folder / f"{self.number}.json"

    def read(self, pull: str) -> Record:
        """The record; an empty one if there is none yet. Raises `FleetError`."""
        try:
            record = Record.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return Record(pull=pull)
        except (OSError, ValidationError) as error:
            raise FleetError(f"{self.path} can't be read: {error}", hint="remove it to begin again") from None
        if record.pull != pull:
            raise FleetError(f"{self.path} is about {record.pull}, not {pull}", hint="remove it to begin again")
        return record

    def write(self, record: Record) -> None:
        """Replace the record; it is on disk when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole = self.path.with_suffix(".new")
        with whole.open("w", encoding="utf-8") as file:
            file.write(record.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        whole.replace(self.path)
        reached("what is known of a pull request is on disk")

    @asynccontextmanager
    async def held(self) -> AsyncIterator[int]:
        """Only this process tends the pull request in the block. The file descriptor is for its calls to keep."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (
            (self.folder / f"{self.number}.lock").open("a+") as ours,
            (self.folder / f"{self.number}.calls").open("a") as calls,
        ):
            try:
                fcntl.flock(ours, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                ours.seek(0)
                holder = ours.read().strip() or "another process"
                raise UsageError(f"{holder} tends this pull request already", hint="stop it, or let it work") from None
            ours.truncate(0)
            ours.write(f"process {os.getpid()}")
            ours.flush()
            await _wait_for(calls.fileno())
            yield calls.fileno()


async def _wait_for(calls: int) -> None:
    """Wait for the calls of a process that was killed: until they have ended, what they do is not known."""
    try:
        with fail_after(CALLS_S):
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(calls, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                await sleep(POLL_S)
    except TimeoutError:
        raise FleetError(
            f"a call to the forge of a fleet that was killed has not ended after {CALLS_S:g} s",
            hint="end that gh, glab or git, then try again",
        ) from None
