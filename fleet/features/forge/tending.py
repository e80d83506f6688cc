"""One step of tending a pull request: look at what is true now, and do what follows from it.

Every step begins with the forge, the branch and the record, and none remembers anything else. So a kill at any moment
costs nothing but time: what was done is seen there, and is not done a second time.
"""

import fcntl
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import fail_after, sleep
from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.app.fleet import Fleet, Order
from fleet.core.base.forges import FORGES
from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.plans.plan import Plan
from fleet.errors import FleetError, UsageError
from fleet.features.forge.forge import Check, Comment, Forge, Pull, Thread
from fleet.features.forge.matters import (
    CheckMatter,
    ThreadMatter,
    answer_done,
    answer_key,
    answer_not_done,
    answer_unchanged,
    authors,
    failed_checks,
    gave_up,
    has_marker,
    marked,
    open_threads,
    place_of,
    round_plan,
    why_stopped,
)
from fleet.features.forge.program import (
    ForgeError,
    NotFoundError,
    NotLoggedInError,
    ProgramMissingError,
    RateLimitedError,
)
from fleet.features.forge.pulls_view import TendRound, TendStatus, TendView
from fleet.features.forge.settings import Tend
from fleet.features.forge.tended_branch import PullBranch, Work
from fleet.read.run import just_after
from fleet.read.subtask_view import SubtaskView
from fleet.runs.crash_points import reached
from fleet.runs.run_folder import RunFolder, runs_by_start, runs_dir
from worktrees.target.publish import RemoteError, RemoteMovedError

# ---- record ----------------------------------------------------------------------------------------------------------
# What is known of tending one pull request, beside the run that opened it: small, and on disk before anything is
# done.
#
# A round names what it answers and the run that does the work; that run's journal has the rest. Two locks: one for
# the process that tends, and one that its calls to the forge keep as long as any of them lives, even if that process
# was killed. Who takes over waits for the second, and then reads what the forge has.


CALLS_S, POLL_S = 180.0, 0.05  # how long a call of a killed process may take to end; longer than any call may take


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class AskedThread(_Kept):
    """A thread that a round answers."""

    thread: str
    comment: str
    subtask: SubtaskId
    """Of the round's run."""

    @property
    def key(self) -> str:
        """What its answer is marked with."""
        return answer_key(self.comment)


class Round(_Kept):
    """One piece of work on a pull request."""

    number: int
    run: RunId
    head: Sha
    """The commit that it began from."""
    threads: tuple[AskedThread, ...] = ()
    checks: tuple[str, ...] = ()
    pushing: Sha | None = None
    """What is to be the head, before it is pushed."""
    pushed: Sha | None = None
    """What was pushed, once the remote has it."""
    onto: Sha | None = None
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
        programs = ", ".join(each.program for each in FORGES)
        raise FleetError(
            f"a call to the forge of a fleet that was killed has not ended after {CALLS_S:g} s",
            hint=f"end that {programs} or git, then try again",
        ) from None


# ---- tending ---------------------------------------------------------------------------------------------------------


PUSHES = 3  # times that a round is put on top of what others push while that goes on
LONGEST_STEM = 40  # characters of a run's name in that of its rounds
SETTLE_S = 3.0  # a forge may take a moment until it shows what it was given
LEAST = 0.01  # dollars: with less a round is not begun


@dataclass(frozen=True, slots=True)
class Seen:
    """What the forge has at the moment."""

    pull: Pull
    comments: tuple[Comment, ...]
    may_ask: frozenset[str]
    threads: tuple[Thread, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def waiting(self) -> tuple[ThreadMatter, ...]:
        return open_threads(self.threads, self.may_ask)


@dataclass(frozen=True, slots=True)
class Tending:
    """One pull request that the fleet opened."""

    fleet: Fleet
    forge: Forge
    branch: PullBranch
    file: RecordFile
    work: Work
    """Runs the engine of a round, and shows it."""
    settings: Tend
    command: str
    """The command line that continues, for people who read the report of giving up."""
    settle_s: float = SETTLE_S
    """How long after a comment that may or may not have been posted the forge is looked at again."""

    @property
    def number(self) -> int:
        return self.file.number

    @property
    def name(self) -> str:
        return self.forge.place.pull_text(self.number)

    # ---- a step

    async def step(self) -> TendView:
        """Do what can be done now. Raises `ForgeError` or `RemoteError` where one can't be reached: then try again."""
        record = self.file.read(self.name)
        if record.posting is not None:
            await sleep(self.settle_s)
        seen = await self._look()
        if seen.pull.state != "open":
            return await self._ended(seen, record, seen.pull.state)
        if (why := self._why_stopped(seen)) is not None:
            return self._view(seen, record, "stopped", why=why)
        head = await self.branch.fetch()
        if head is None:
            return self._view(seen, record, "stopped", why=f"its branch {self.branch.name} is gone")
        if (open_round := self._begun(record)) is not None:
            return await self._finish(seen, open_round)
        threads, failed = seen.waiting, failed_checks(seen.checks, head)
        if not threads and not failed:
            pending = any(each.state == "pending" or each.sha != head for each in seen.checks)
            return self._view(seen, record, "waiting" if pending else "quiet", head=head)
        if (limit := self._limit(record)) is not None:
            return await self._give_up(seen, record, head, limit, [*map(place_of, threads), *(c.name for c in failed)])
        return await self._begin(seen, record, head, threads, failed)

    async def _look(self) -> Seen:
        pull = await self.forge.pull(self.number)
        if pull.is_cross_repository:
            raise UsageError(f"{self.name} is of a fork", hint="the fleet tends only what it opened itself")
        if pull.head_branch != self.branch.name:
            raise UsageError(f"the branch of {self.name} is not {self.branch.name}, which the fleet pushed")
        if pull.state != "open":
            return Seen(pull, (), frozenset())
        comments, threads = await self.forge.comments(self.number), await self.forge.threads(self.number)
        may_ask = await self._may_ask(authors(threads, comments))
        return Seen(pull, comments, may_ask, threads, await self.forge.checks(pull))

    async def _may_ask(self, names: frozenset[str]) -> frozenset[str]:
        """Those of them whose word counts: who may push, and whom the operator named."""
        named = {each.casefold() for each in self.settings.authors}
        return frozenset(
            [each for each in sorted(names) if each.casefold() in named or await self.forge.may_write(each)]
        )

    def _why_stopped(self, seen: Seen) -> str | None:
        return why_stopped(seen.pull, seen.comments, seen.may_ask, self.settings.label)

    # ---- rounds

    async def _begin(
        self, seen: Seen, record: Record, head: Sha, threads: Sequence[ThreadMatter], failed: Sequence[Check]
    ) -> TendView:
        checks = [CheckMatter(each.name, each.link, await self.forge.log(each)) for each in failed]
        number = len(record.rounds) + 1
        plan = round_plan(seen.pull, number, threads, checks, self.settings.worker)
        asked = zip(threads, (each.id for each in plan.subtasks), strict=False)
        begun = Round(
            number=number,
            run=self._round_name(number),
            head=head,
            threads=tuple(AskedThread(thread=each.thread, comment=each.comment, subtask=id_) for each, id_ in asked),
            checks=tuple(each.name for each in checks),
        )
        record = record.with_round(begun)
        self.file.write(record)
        await self.branch.bring(head)
        await self._create(begun, plan, record)
        reached("a round has a run")
        return await self._finish(seen, begun)

    async def _create(self, begun: Round, plan: Plan, record: Record) -> None:
        policy = self.fleet.wiring.policy.model_copy(
            update={
                "budget_dollars": self._left(record),
                "review": False,
                "reviewing": "none",
                "flat": False,
                "allow_red_base": True,  # a red check of CI is often a red gate
                "answer_wait_s": 0.0,
                "max_attempts": min(self.settings.attempts, self.fleet.wiring.policy.max_attempts),
            }
        )
        order = Order(
            goal=plan.goal,
            repository=Path(self.branch.target.root),
            base=begun.head,
            name=begun.run,
            plan=plan,
            policy=policy,
        )
        await self.fleet.create(order)

    def _begun(self, record: Record) -> Round | None:
        """The round that is not done. One whose run was never made is forgotten: nothing happened."""
        found = record.open_round
        if found is None:
            return None
        folder = self._folder(found)
        try:
            if folder.journal.is_file() and folder.state():
                return found
        except FleetError:
            folder.remove()  # its journal was made, and nothing was written
        self.file.write(record.without_round(found.number))
        return None

    async def _finish(self, seen: Seen, found: Round) -> TendView:
        folder = self._folder(found)
        if not folder.state().ended:
            await self.work(folder)
            if not folder.state().ended:
                return self._view(seen, self.file.read(self.name), "interrupted", head=found.head)
            seen = await self._look()  # that took a while
            if seen.pull.state != "open":
                return await self._ended(seen, self.file.read(self.name), seen.pull.state)
            if (why := self._why_stopped(seen)) is not None:
                return self._view(seen, self.file.read(self.name), "stopped", why=why)
        found = await self._deliver(found, folder)
        await self._answer(found, folder)
        found = found.model_copy(update={"is_done": True, "dollars": dollars_of(self.fleet.state_dir, found.run)})
        record = self._keep(found)
        await self.branch.remove_local()
        return self._view(await self._look(), record, "working", head=found.pushed or found.head)

    async def _deliver(self, found: Round, folder: RunFolder) -> Round:
        """Push what has landed, on top of what the head is by now."""
        if folder.state().published is None or found.pushed or found.dropped or found.unfit:
            return found
        for _ in range(PUSHES):
            head = await self.branch.fetch()
            if head is None:
                return self._kept(found, dropped=f"{self.branch.name} is gone")
            if found.pushing is not None and await self.branch.is_on(found.pushing, head):
                return self._kept(found, pushed=found.pushing)
            if not await self.branch.is_on(found.head, head):
                return self._kept(found, dropped=f"{self.branch.name} was replaced by a person while it was worked on")
            taken = await self.branch.put_on(self.fleet, folder, head, self.work, self._left_in(found))
            if isinstance(taken, str):
                return self._kept(found, unfit=taken.partition("\n")[0])
            if taken.how == "nothing":
                return self._kept(found, pushed=head, onto=found.head)
            found = self._kept(found, pushing=taken.commit, onto=head)
            try:
                await self.branch.push(taken.commit)
            except RemoteMovedError:
                continue
            return self._kept(found, pushed=taken.commit)
        raise FleetError(f"{self.branch.name} moves whenever it is pushed to", hint="try again later")

    async def _answer(self, found: Round, folder: RunFolder) -> None:
        """Answer each thread of the round that has no answer yet."""
        if found.dropped is not None or not found.threads:
            return
        texts = await answers(found, folder, self.branch)
        threads = {thread.id: thread for thread in await self.forge.threads(self.number)}
        for asked in found.threads:
            thread, text = threads.get(asked.thread), texts[asked.key]
            if thread is None or has_marker(thread.comments, asked.key):
                continue
            self._intend(asked.key)
            await self.forge.comment(self.number, marked(asked.key, text), thread=asked.thread)
            reached("a thread has an answer")
        self._intend(None)

    # ---- the end

    async def _ended(self, seen: Seen, record: Record, status: TendStatus) -> TendView:
        await self.branch.remove_local()
        return self._view(seen, record, status)

    async def _give_up(self, seen: Seen, record: Record, head: Sha, why: str, remaining: list[str]) -> TendView:
        """Report it in one comment, which names the limit: a higher one may be reached again."""
        key = f"gave-up-{len(record.rounds)}-{round(self._spent(record) * 100)}"
        if not has_marker(seen.comments, key):
            self._intend(key)
            text = gave_up(why, remaining, len(record.rounds), self._spent(record), self.command)
            await self.forge.comment(self.number, marked(key, text))
            reached("a report of giving up is posted")
            self._intend(None)
        return self._view(seen, self.file.read(self.name), "gave_up", why=why, head=head)

    def _limit(self, record: Record) -> str | None:
        """The limit that is reached; None if a round may begin."""
        if len(record.rounds) >= self.settings.rounds:
            return f"its {self.settings.rounds} rounds are used up"
        if self._left(record) < LEAST:
            return f"its budget of ${self.settings.dollars:g} is spent"
        return None

    # ---- what is kept

    def _round_name(self, number: int) -> RunId:
        stem = f"{self.branch.run[:LONGEST_STEM].rstrip('.-_')}-pr{self.number}-{number}"
        names = (stem, *(f"{stem}-{letter}" for letter in "bcdefghijklmnopqrstuvwxyz"))
        taken = runs_dir(self.fleet.state_dir)
        return next(RunId(name) for name in names if not (taken / name).exists())

    def _folder(self, found: Round) -> RunFolder:
        return RunFolder(runs_dir(self.fleet.state_dir) / found.run)

    def _spent(self, record: Record) -> float:
        return sum(
            each.dollars if each.is_done else dollars_of(self.fleet.state_dir, each.run) for each in record.rounds
        )

    def _left(self, record: Record) -> float:
        return max(0.0, self.settings.dollars - self._spent(record))

    def _left_in(self, found: Round) -> float:
        return self._left(self.file.read(self.name).with_round(found))

    def _kept(self, found: Round, **changes: str) -> Round:
        changed = found.model_copy(update=changes)
        self._keep(changed)
        return changed

    def _keep(self, found: Round) -> Record:
        record = self.file.read(self.name).with_round(found)
        self.file.write(record)
        return record

    def _intend(self, key: str | None) -> None:
        record = self.file.read(self.name)
        if record.posting != key:
            self.file.write(record.model_copy(update={"posting": key}))

    def _view(
        self, seen: Seen, record: Record, status: TendStatus, *, why: str = "", head: Sha | None = None
    ) -> TendView:
        at = head or Sha(seen.pull.head_sha)
        return TendView(
            pull=self.name,
            url=seen.pull.url,
            run=self.branch.run,
            status=status,
            why=why,
            head=at,
            threads=len(seen.waiting),
            failed=tuple(each.name for each in failed_checks(seen.checks, at)),
            rounds=tuple(
                TendRound(
                    number=each.number,
                    run=each.run,
                    threads=len(each.threads),
                    checks=each.checks,
                    pushed=each.pushed,
                    why=each.dropped or each.unfit or "",
                    is_done=each.is_done,
                )
                for each in record.rounds
            ),
            cost_dollars=self._spent(record),
        )


# ---- results ---------------------------------------------------------------------------------------------------------
# What came of a round, read from its run and from the commits that were pushed.


async def answers(found: Round, folder: RunFolder, branch: PullBranch) -> Mapping[str, str]:
    """The answer to each thread of a round, by its key."""
    run = just_after(folder.state())
    commits: dict[SubtaskId, Sha] = {}
    if found.pushed is not None and found.onto is not None:
        runs = frozenset({found.run, *_relandings(folder)})
        commits = await branch.landed(found.pushed, found.onto, runs)
    return {
        asked.key: _answer(
            run.subtask(asked.subtask) if run.has_subtask(asked.subtask) else None,
            commits.get(asked.subtask),
            found.unfit,
        )
        for asked in found.threads
    }


def dollars_of(state_dir: Path, run: RunId) -> float:
    """What a run and those that landed its result again have cost; 0 if it is gone."""
    folder = RunFolder(runs_dir(state_dir) / run)
    if not folder.journal.is_file():
        return 0.0
    return sum(_dollars(runs_dir(state_dir) / each) for each in (run, *_relandings(folder)))


def _dollars(path: Path) -> float:
    try:
        return RunFolder(path).state().spent.priced_dollars or 0.0
    except FleetError:
        return 0.0


def _relandings(folder: RunFolder) -> list[RunId]:
    """The runs that landed the result of this one again."""
    return [
        each.folder.run
        for each in runs_by_start(folder.path.parents[1])
        if each.state is not None and each.state.relanding is not None and each.state.relanding.run == folder.run
    ]


def _answer(subtask: SubtaskView | None, commit: Sha | None, unfit: str | None) -> str:
    last = subtask.attempts[-1] if subtask is not None and subtask.attempts else None
    summary = last.report.summary if last is not None and last.report is not None else ""
    if commit is not None:
        return answer_done(commit, summary)
    if last is not None and last.landed is not None and last.unchanged:
        return answer_unchanged(summary)
    if unfit is not None and subtask is not None and subtask.landed is not None:
        return answer_not_done(f"It was done, but does not fit on what was pushed meanwhile: {unfit}")
    failure = last.failure.summary if last is not None and last.failure is not None else "it was not tried"
    return answer_not_done(summary or failure)


# ---- watch -----------------------------------------------------------------------------------------------------------
# Looks at a pull request again and again, until nothing more can be done about it.


OVER: frozenset[TendStatus] = frozenset({"merged", "closed", "stopped", "gave_up", "interrupted"})
FIRST_S, LONGEST_S = 15.0, 900.0  # pauses after errors that may pass
FOR_GOOD = (NotFoundError, NotLoggedInError, ProgramMissingError)  # what only a person can change


def pause_after(error: FleetError, failures: int, now: float) -> float:
    """Seconds until another try after so many failures in a row, or until a rate limit ends."""
    usual = min(LONGEST_S, FIRST_S * 2.0 ** min(failures - 1, 10))
    if isinstance(error, RateLimitedError) and error.retry_at is not None:
        return min(3600.0, max(1.0, error.retry_at - now))
    return usual


async def watch(
    step: Callable[[], Awaitable[TendView]],
    *,
    poll_s: float,
    report: Callable[[TendView], None],
    note: Callable[[str], None],
    pause: Callable[[float], Awaitable[None]] = sleep,
) -> TendView:
    """Take steps until it is over. Raises what only a person can change."""
    failures, last = 0, None
    while True:
        try:
            view = await step()
        except (ForgeError, RemoteError) as error:
            if isinstance(error, FOR_GOOD):
                raise
            failures += 1
            wait = pause_after(error, failures, time.time())
            note(f"{error}; trying again in {wait:.0f} s")
            await pause(wait)
            continue
        failures = 0
        if view != last:
            report(view)
        last = view
        if view.status in OVER:
            return view
        await pause(0 if view.status == "working" else poll_s)
