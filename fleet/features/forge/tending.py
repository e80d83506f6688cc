"""Tend a pull request: address CI failures and review threads in rounds, one step at a time.

Each step reads the current state from the forge, the branch and the record, and keeps no other memory. After a kill
at any moment, the next step finds the finished work there and does not repeat it.
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

from dashboards.text.formats import counted
from fleet.app.fleet import Fleet, Order
from fleet.core.base.forges import FORGES
from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.plans.plan import Plan
from fleet.errors import FleetError, UsageError
from fleet.features.forge.forge import Check, Comment, Forge, Pull, Thread
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
from fleet.features.forge.work_items import (
    FailedCheck,
    ReviewThread,
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
from fleet.read.run import just_after
from fleet.read.subtask_view import SubtaskView
from fleet.runs.crash_points import reached
from fleet.runs.run_folder import RunFolder, runs_by_start, runs_dir
from worktrees.target.publish import RemoteError, RemoteMovedError

# ---- record ----------------------------------------------------------------------------------------------------------
# The state of tending one pull request, in the folder of the run that opened it. It is written to disk before each
# action.
#
# A round lists its threads and checks, and the run that does the work. That run's journal has the rest. There are two
# locks. The tending process holds the first. Its calls to the forge hold the second while they run, even if that
# process is killed. The next process waits for the second lock before it reads the forge.


CALLS_S, POLL_S = 180.0, 0.05  # wait for the calls of a killed process; longer than the timeout of any call


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class AskedThread(_Kept):
    """A thread that a round answers."""

    thread: str
    comment: str
    subtask: SubtaskId
    """The subtask in the round's run."""

    @property
    def key(self) -> str:
        """The marker of its answer."""
        return answer_key(self.comment)


class Round(_Kept):
    """One round of work on a pull request."""

    number: int
    run: RunId
    head: Sha
    """The commit that it started from."""
    threads: tuple[AskedThread, ...] = ()
    checks: tuple[str, ...] = ()
    pushing: Sha | None = None
    """The new head, recorded before the push."""
    pushed: Sha | None = None
    """The new head, recorded once the remote has it."""
    onto: Sha | None = None
    """The head below its commits."""
    dropped: str | None = None
    """Why its commits were discarded, for example because someone replaced the commits below them."""
    unfit: str | None = None
    """Why its commits could not be applied on top of commits that others pushed during the round."""
    dollars: float = 0.0
    """The cost, once it is done."""
    is_done: bool = False


class Record(_Kept):
    """The stored state of one pull request."""

    pull: str
    rounds: tuple[Round, ...] = ()
    posting: str | None = None
    """The marker of the comment that is being posted."""

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
    """The file of one record."""

    folder: Path
    number: int

    @property
    def path(self) -> Path:
        return self.folder / f"{self.number}.json"

    def read(self, pull: str) -> Record:
        """Return the record, or an empty record if the file does not exist. Raises `FleetError`."""
        try:
            record = Record.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return Record(pull=pull)
        except (OSError, ValidationError) as error:
            raise FleetError(f"{self.path} can't be read: {error}", hint="remove it to start over") from None
        if record.pull != pull:
            raise FleetError(f"{self.path} belongs to {record.pull}, not {pull}", hint="remove it to start over")
        return record

    def write(self, record: Record) -> None:
        """Replace the record and sync it to disk."""
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
        """Lock the pull request for this process, and yield the file descriptor of the lock for its forge calls."""
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
                raise UsageError(
                    f"{holder} is already tending this pull request", hint="stop it, or wait until it exits"
                ) from None
            ours.truncate(0)
            ours.write(f"process {os.getpid()}")
            ours.flush()
            await _wait_for(calls.fileno())
            yield calls.fileno()


async def _wait_for(calls: int) -> None:
    """Wait until the forge calls of a killed process have ended: until then, their effect is unknown."""
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
            f"a {programs} or git process left over from a killed fleet is still running after {CALLS_S:g} s",
            hint="stop that process, then try again",
        ) from None


# ---- tending ---------------------------------------------------------------------------------------------------------


PUSHES = 3  # tries to push a round while others push to the same branch
LONGEST_STEM = 40  # characters of a run's name in the names of its rounds
SETTLE_S = 3.0  # a new comment may take a moment to appear on the forge
LEAST = 0.01  # dollars needed to start a round


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of the pull request on the forge."""

    pull: Pull
    comments: tuple[Comment, ...]
    may_ask: frozenset[str]
    threads: tuple[Thread, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def waiting(self) -> tuple[ReviewThread, ...]:
        return open_threads(self.threads, self.may_ask)


@dataclass(frozen=True, slots=True)
class Tending:
    """One pull request that fleet opened."""

    fleet: Fleet
    forge: Forge
    branch: PullBranch
    file: RecordFile
    work: Work
    """Runs the engine of a round and shows its progress."""
    settings: Tend
    command: str
    """The command that continues, quoted in the comment that reports a limit."""
    settle_s: float = SETTLE_S
    """Seconds to wait before reading the forge again if a comment may have been posted."""

    @property
    def number(self) -> int:
        return self.file.number

    @property
    def name(self) -> str:
        return self.forge.place.pull_text(self.number)

    # ---- a step

    async def step(self) -> TendView:
        """Take one step. Raises `ForgeError` or `RemoteError` if the forge or the remote can't be reached."""
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
            return self._view(seen, record, "stopped", why=f"its branch {self.branch.name} was deleted")
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
            raise UsageError(f"{self.name} comes from a fork", hint="fleet only tends pull requests that it opened")
        if pull.head_branch != self.branch.name:
            raise UsageError(f"the branch of {self.name} is {pull.head_branch}, but fleet pushed {self.branch.name}")
        if pull.state != "open":
            return Seen(pull, (), frozenset())
        comments, threads = await self.forge.comments(self.number), await self.forge.threads(self.number)
        may_ask = await self._may_ask(authors(threads, comments))
        return Seen(pull, comments, may_ask, threads, await self.forge.checks(pull))

    async def _may_ask(self, names: frozenset[str]) -> frozenset[str]:
        """Return the accounts that fleet listens to: those with push access, and those in `tend.authors`."""
        named = {each.casefold() for each in self.settings.authors}
        return frozenset(
            [each for each in sorted(names) if each.casefold() in named or await self.forge.may_write(each)]
        )

    def _why_stopped(self, seen: Seen) -> str | None:
        return why_stopped(seen.pull, seen.comments, seen.may_ask, self.settings.label)

    # ---- rounds

    async def _begin(
        self, seen: Seen, record: Record, head: Sha, threads: Sequence[ReviewThread], failed: Sequence[Check]
    ) -> TendView:
        checks = [FailedCheck(each.name, each.link, await self.forge.log(each)) for each in failed]
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
        """Return the unfinished round. A round whose run was never created is removed from the record."""
        found = record.open_round
        if found is None:
            return None
        folder = self._folder(found)
        try:
            if folder.journal.is_file() and folder.state():
                return found
        except FleetError:
            folder.remove()  # its journal is empty
        self.file.write(record.without_round(found.number))
        return None

    async def _finish(self, seen: Seen, found: Round) -> TendView:
        folder = self._folder(found)
        if not folder.state().ended:
            await self.work(folder)
            if not folder.state().ended:
                return self._view(seen, self.file.read(self.name), "interrupted", head=found.head)
            seen = await self._look()  # the forge may have changed during the run
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
        """Push the landed commits on top of the current head."""
        if folder.state().published is None or found.pushed or found.dropped or found.unfit:
            return found
        for _ in range(PUSHES):
            head = await self.branch.fetch()
            if head is None:
                return self._kept(found, dropped=f"{self.branch.name} was deleted")
            if found.pushing is not None and await self.branch.is_on(found.pushing, head):
                return self._kept(found, pushed=found.pushing)
            if not await self.branch.is_on(found.head, head):
                return self._kept(found, dropped=f"someone replaced the commits of {self.branch.name} during the round")
            taken = await self.branch.put_on(self.fleet, folder, head, self.work, self._left_in(found))
            if isinstance(taken, str):
                return self._kept(found, unfit=taken.partition("\n")[0])
            if taken.how == "up to date":
                return self._kept(found, pushed=head, onto=found.head)
            found = self._kept(found, pushing=taken.commit, onto=head)
            try:
                await self.branch.push(taken.commit)
            except RemoteMovedError:
                continue
            return self._kept(found, pushed=taken.commit)
        raise FleetError(
            f"{self.branch.name} was rejected {PUSHES} times, because others pushed to it", hint="try again later"
        )

    async def _answer(self, found: Round, folder: RunFolder) -> None:
        """Reply to each thread of the round that does not have a reply yet."""
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
        """Report the limit in one comment. Its marker includes the usage, so a raised limit is reported again."""
        key = f"gave-up-{len(record.rounds)}-{round(self._spent(record) * 100)}"
        if not has_marker(seen.comments, key):
            self._intend(key)
            text = gave_up(why, remaining, len(record.rounds), self._spent(record), self.command)
            await self.forge.comment(self.number, marked(key, text))
            reached("a report of giving up is posted")
            self._intend(None)
        return self._view(seen, self.file.read(self.name), "gave_up", why=why, head=head)

    def _limit(self, record: Record) -> str | None:
        """Return the limit that was reached, or None if another round may start."""
        if len(record.rounds) >= self.settings.rounds:
            return f"it reached the limit of {counted(self.settings.rounds, 'round')}"
        if self._left(record) < LEAST:
            return f"it used up its budget of ${self.settings.dollars:g}"
        return None

    # ---- record

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
# The result of a round, from its run and the pushed commits.


async def answers(found: Round, folder: RunFolder, branch: PullBranch) -> Mapping[str, str]:
    """Return the reply to each thread of a round, by marker."""
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
    """Return the cost of a run and its re-landings, or 0 if the run was removed."""
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
    """Return the runs that re-landed this run's result."""
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
        return answer_not_done(f"The change conflicts with commits that were pushed in the meantime: {unfit}")
    failure = last.failure.summary if last is not None and last.failure is not None else "fleet did not attempt it"
    return answer_not_done(summary or failure)


# ---- watch -----------------------------------------------------------------------------------------------------------
# Repeats steps until the pull request is merged or closed, or tending stops.


OVER: frozenset[TendStatus] = frozenset({"merged", "closed", "stopped", "gave_up", "interrupted"})
FIRST_S, LONGEST_S = 15.0, 900.0  # pauses after transient errors
FOR_GOOD = (NotFoundError, NotLoggedInError, ProgramMissingError)  # errors that retries can't fix


def pause_after(error: FleetError, failures: int, now: float) -> float:
    """Return the seconds to wait after this many consecutive failures, or until a rate limit resets."""
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
    """Take steps until tending is over. Raises errors that retries can't fix."""
    failures, last = 0, None
    while True:
        try:
            view = await step()
        except (ForgeError, RemoteError) as error:
            if isinstance(error, FOR_GOOD):
                raise
            failures += 1
            wait = pause_after(error, failures, time.time())
            note(f"{error}. Trying again in {wait:.0f} s")
            await pause(wait)
            continue
        failures = 0
        if view != last:
            report(view)
        last = view
        if view.status in OVER:
            return view
        await pause(0 if view.status == "working" else poll_s)
