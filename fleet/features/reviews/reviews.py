"""Requests reviews of changes whose checks pass, from a model that did not make them. Each vote is recorded.

A batch is recorded before it is sent, and again with its name. A resumed run therefore waits for the batch that was
already billed. If the name was lost, it searches for the batch among the service's batches.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import blake2b

from anyio import sleep

from agents.factory import OpenModels
from dashboards.text.formats import counted
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet
from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost
from fleet.core.facts import facts as f
from fleet.core.facts.failures import EVIDENCE
from fleet.core.plans.plan import Criterion, Subtask
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Attempt
from fleet.core.verdicts.suspicious_changes import Patch, parse_patch
from fleet.engine.adapters import Adapters
from fleet.engine.checks import run_side_by_side
from fleet.engine.reservations import CallMeter, Purpose, RunBudget
from fleet.features.reviews.reviewer import BatchFound, BatchResults, ClaudeReviewer, ReviewBrief
from fleet.features.reviews.settings import Reviewer
from fleet.ports.agents import DrainingError, ModelUse
from fleet.ports.journal import Clock, Recorder
from fleet.ports.worktrees import Commits
from fleet.read.base_view import Finding

# ---- verdict ---------------------------------------------------------------------------------------------------------
# Reviews of a change: missing votes, verdicts and the outcomes of findings. A vote approves if it has no findings. A
# reviewer can't approve in words. Findings outside the diff were already discarded. Queries only.


MOST_SHOWN = 20  # findings in the evidence of a failure


def reviews_of(spec: Subtask, settings: Reviewer) -> tuple["ReviewCheck", ...]:
    """Return the reviews of a subtask's change: those in its plan, and the review of every change."""
    own = [ReviewCheck.of(c, settings.votes) for c in spec.acceptance if c.review is not None]
    if not (look_for := settings.look_for.strip()):
        return tuple(own)
    return (*own, ReviewCheck("reviewed", look_for, None, settings.votes, _most(settings.votes)))


@dataclass(frozen=True, slots=True)
class ReviewCheck:
    """A criterion decided by reviewers."""

    criterion: str
    focus: str
    model: str | None
    votes: int
    threshold: int
    """The number of votes that must approve."""

    @classmethod
    def of(cls, criterion: Criterion, votes: int) -> "ReviewCheck":
        votes = criterion.votes or max(votes, criterion.threshold or 1)
        threshold = min(criterion.threshold or _most(votes), votes)
        return cls(criterion.criterion, criterion.review or "", criterion.model, votes, threshold)

    def counted(self, attempt: Attempt) -> tuple[f.Vote, ...]:
        """Return the existing votes."""
        return tuple(v for v in attempt.votes if (v.criterion, v.focus) == (self.criterion, self.focus))

    def passes(self, attempt: Attempt) -> bool | None:
        """Whether the votes approve the change; None while undecided."""
        votes = self.counted(attempt)
        approving = sum(not vote.findings for vote in votes)
        if approving >= self.threshold:
            return True
        return False if len(votes) - approving > self.votes - self.threshold else None

    def wanted(self, attempt: Attempt, *, at_once: bool) -> tuple[int, ...]:
        """Return the numbers of the votes to request next: as few as may decide, or all that may be needed."""
        if self.passes(attempt) is not None:
            return ()
        there = {vote.vote for vote in self.counted(attempt)}
        missing = [number for number in range(1, self.votes + 1) if number not in there]
        approving = sum(not vote.findings for vote in self.counted(attempt))
        return tuple(missing if at_once else missing[: self.threshold - approving])


def _most(votes: int) -> int:
    return votes // 2 + 1


def place(finding: f.ReviewFinding) -> str:
    return f"{finding.file}:{finding.line}"


def verdict(review: ReviewCheck, attempt: Attempt) -> f.CheckRun:
    """Return the votes in the form of a check."""
    votes = review.counted(attempt)
    against = [vote for vote in votes if vote.findings]
    models = ", ".join(dict.fromkeys(vote.model for vote in votes))
    return f.CheckRun(
        criterion=review.criterion,
        command=f"review by {models or 'no model, because the change is empty'}",
        passed=review.passes(attempt) is not False,
        output="\n".join(_lines(review, votes, against)),
        review=True,
    )


def _lines(review: ReviewCheck, votes: Sequence[f.Vote], against: Sequence[f.Vote]) -> Iterator[str]:
    if review.votes > 1:
        yield f"{len(votes) - len(against)} of {len(votes)} votes have no findings ({review.threshold} required)"
    found = list(dict.fromkeys(finding for vote in against for finding in vote.findings))
    for finding in found[:MOST_SHOWN]:
        yield f"{place(finding)}: {finding.problem}"
    if len(found) > MOST_SHOWN:
        yield f"and {len(found) - MOST_SHOWN} more findings"
    if discarded := sum(vote.discarded for vote in votes):
        yield f"({discarded} discarded, because they don't name a line of the change)"


def review_failure(red: Sequence[f.CheckRun]) -> f.Failure:
    """Return the failure of a change with findings."""
    share = EVIDENCE // max(1, len(red))
    found = "\n\n".join(f"{check.criterion} ({check.command}):\n{check.output[:share]}" for check in red)
    names = ", ".join(check.criterion for check in red)
    return f.Failure(kind="check", summary=f"reviewers found faults: {names}", evidence=found)


# ---- what becomes of findings ---------------------------------------------------------------------------------------


def settled_by(state: RunState, id_: SubtaskId, patch: Patch) -> Iterator[f.FindingSettled]:
    """Settle findings by a change that passed: those of its subtask, and those whose line it removes."""
    for number, finding in findings_of(state.subtasks[id_].attempts):
        now: f.FindingResult = "ignored" if _is_still_there(finding, patch) else "fixed"
        if now != state.settled.get((id_, number, finding)):
            yield f.FindingSettled(subtask=id_, attempt=number, finding=finding, result=now)
    for (other, number, finding), before in state.settled.items():
        is_ignored = before == "ignored" and other != id_ and state.subtasks[other].landed is not None
        if is_ignored and finding.sign != "-" and finding.text in patch.lines(finding.file, "-"):
            yield f.FindingSettled(subtask=other, attempt=number, finding=finding, result="reverted")


def findings_of(attempts: Sequence[Attempt]) -> Iterator[tuple[int, f.ReviewFinding]]:
    """Yield every finding of these attempts, once per attempt, with the attempt's number."""
    for attempt in attempts:
        if attempt.votes:
            for finding in dict.fromkeys(finding for vote in attempt.votes for finding in vote.findings):
                yield attempt.number, finding


def _is_still_there(finding: f.ReviewFinding, patch: Patch) -> bool:
    """Whether the change that passed still contains the line of a finding."""
    if finding.sign == " ":  # an unchanged line
        return finding.text not in patch.lines(finding.file, "-")
    return finding.text in patch.lines(finding.file, finding.sign)


# ---- reviews ---------------------------------------------------------------------------------------------------------


SLICE_S = 1.0  # how long a draining run may wait for a batch
SAME_MODEL = (
    "{subtask} is reviewed by {model}, the model that made the change. To use another model, set reviewer.model."
)


@dataclass(slots=True)
class Reviews:
    """Runs the reviews of one run."""

    engine: Recorder
    reviewer: ClaudeReviewer
    commits: Commits
    clock: Clock
    budget: RunBudget
    settings: Reviewer
    _warned: set[str] = field(default_factory=set)

    async def judge(self, spec: Subtask, number: int) -> tuple[f.Failure | None, tuple[f.CheckRun, ...]]:
        """Review a change. Return the failure, if it does not pass, and the verdicts. Without reviews, it passes."""
        attempt, reviews = self._attempt(spec.id, number), reviews_of(spec, self.settings)
        if not reviews or attempt.commit is None:
            return None, ()
        again = self.engine.state.relanding
        if again is not None and again.commits.get(spec.id) == attempt.commit:
            return None, ()  # it was reviewed when it was made
        patch = parse_patch(await self.commits.diff(attempt.base, attempt.commit))
        if why := self.reviewer.too_large(patch):
            return f.Failure(kind="too_complex", summary=why), ()
        reviewing = Reviewing(self, self.reviewer, spec, number, patch, reviews)
        if failure := await reviewing.ask():
            return failure.model_copy(update={"summary": f"the review failed: {failure.summary}"}), ()
        attempt = self._attempt(spec.id, number)
        checks = tuple(verdict(review, attempt) for review in reviews)
        red = tuple(check for check in checks if not check.passed)
        return (review_failure(red) if red else None), checks

    async def settled(self, spec: Subtask, number: int) -> tuple[f.FindingsSettled, ...]:
        """Return the outcomes of findings after an attempt has passed."""
        state, attempt = self.engine.state, self._attempt(spec.id, number)
        if attempt.commit is None:
            return ()
        patch = parse_patch(await self.commits.diff(attempt.base, attempt.commit))
        settled = tuple(settled_by(state, spec.id, patch))
        at = self.clock.now()
        return (f.FindingsSettled(at=at, subtask=spec.id, number=number, settled=settled),) if settled else ()

    def _attempt(self, id_: SubtaskId, number: int) -> Attempt:
        return self.engine.state.subtasks[id_].attempts[number - 1]

    async def warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            await self.engine.record(f.WarningNoted(at=self.clock.now(), text=text))


@dataclass(slots=True)
class Reviewing:
    """Runs the reviews of one change."""

    run: Reviews
    reviewer: ClaudeReviewer
    spec: Subtask
    number: int
    patch: Patch
    reviews: Sequence[ReviewCheck]

    @property
    def attempt(self) -> Attempt:
        return self.run.engine.state.subtasks[self.spec.id].attempts[self.number - 1]

    async def ask(self) -> f.Failure | None:
        """Request votes until they decide. Return a failure if that is not possible."""
        if (self.run.settings.batch or self.attempt.batch is not None) and not self.attempt.unbatched:
            failure = await self._ask_batch()
            if failure is not None:
                return failure
        while briefs := await self._briefs(at_once=False):
            answers = await run_side_by_side([partial(self._vote, brief) for brief in briefs])
            if failures := [answer for answer in answers if answer is not None]:
                return failures[0]
        return None

    async def _vote(self, brief: ReviewBrief) -> f.Failure | None:
        meter = CallMeter(self.run.budget, Purpose("reviewer", subtask=self.spec.id, attempt=self.number))
        vote = await self.reviewer.review(brief, meter)
        if isinstance(vote, f.Failure):
            return vote
        await self._record_votes((vote,))
        return None

    async def _record_votes(self, votes: tuple[f.Vote, ...], *called: f.ModelCalled, batch: str = "") -> None:
        at = self.run.clock.now()
        voted = f.ReviewVoted(at=at, subtask=self.spec.id, number=self.number, votes=votes, batch=batch)
        await self.run.engine.record(*called, voted)

    async def _briefs(self, *, at_once: bool) -> list[ReviewBrief]:
        """Return the reviews to request next."""
        wanted = [(review, vote) for review in self.reviews for vote in review.wanted(self.attempt, at_once=at_once)]
        return [self._brief(await self._asked(review, vote)) for review, vote in wanted]

    def _brief(self, asked: f.AskedVote) -> ReviewBrief:
        return ReviewBrief(self.run.engine.state.run, self.spec, self.number, asked, self.patch)

    async def _asked(self, review: ReviewCheck, vote: int) -> f.AskedVote:
        worker = self.attempt.model
        model = self.reviewer.model(review.model, worker)
        if model == worker:
            await self.run.warn_once(SAME_MODEL.format(subtask=self.spec.id, model=model))
        state = self.run.engine.state
        names = (state.run, state.started_at, self.spec.id, self.number, review.criterion, review.focus, vote)
        id_ = blake2b(repr(names).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
        return f.AskedVote(id=f"fleet-{id_}", criterion=review.criterion, focus=review.focus, vote=vote, model=model)

    # ---- as a batch

    async def _ask_batch(self) -> f.Failure | None:
        """Request all votes that may be needed as one batch. Unanswered ones are requested individually afterwards."""
        pending = self.attempt.batch
        if pending is None:
            if not (briefs := await self._briefs(at_once=True)):
                return None
            asked, cost = tuple(brief.asked for brief in briefs), self.reviewer.most(briefs)
            refused = await self.run.budget.reserve(cost, self.spec.id)
            if refused is not None:
                return refused
            try:
                pending = self._batch(asked, cost)
                await self.run.engine.record(pending)  # from now on it counts as pending in the budget
            finally:
                self.run.budget.free(cost)
            await self.run.budget.record_reservations()
            name = await self._send(pending, self._by_id(pending))
        elif pending.batch:
            name = pending.batch
        else:
            found = await self._find(pending)
            name = found or await self._send(pending, self._by_id(pending))
        if isinstance(name, f.Failure):
            await self._unbatch(name)
            return None
        if name != pending.batch:
            await self.run.engine.record(self._batch(pending.asked, pending.cost, name))
        return await self._collect(name, self._by_id(pending))

    def _batch(self, asked: tuple[f.AskedVote, ...], cost: Cost, batch: str = "") -> f.ReviewBatched:
        at = self.run.clock.now()
        return f.ReviewBatched(at=at, subtask=self.spec.id, number=self.number, asked=asked, cost=cost, batch=batch)

    def _by_id(self, pending: f.ReviewBatched) -> dict[str, ReviewBrief]:
        return {asked.id: self._brief(asked) for asked in pending.asked}

    async def _send(self, pending: f.ReviewBatched, briefs: Mapping[str, ReviewBrief]) -> str | f.Failure:
        sent = await self.reviewer.send(list(briefs.values()))
        if isinstance(sent, f.Failure) and sent.status is None:  # it may still have arrived
            return await self._find(pending) or sent
        return sent

    async def _find(self, pending: f.ReviewBatched) -> str | None:
        """Wait until the service lists a batch that may have been sent. Return its name, or None if it was not sent."""
        while True:
            found = await self.reviewer.find(pending.asked, pending.at)
            if isinstance(found, BatchFound) and (found.batch is not None or not found.is_open):
                return found.batch
            if isinstance(found, f.Failure) and found.kind != "transient":
                return None
            await self._wait(found)

    async def _collect(self, batch: str, briefs: Mapping[str, ReviewBrief]) -> f.Failure | None:
        while True:
            results = await self.reviewer.collect(batch, briefs)
            if isinstance(results, BatchResults):
                called = [self._called(use) for use in results.uses]
                await self._record_votes(results.votes, *called, batch=batch)
                return None
            if isinstance(results, f.Failure) and results.kind != "transient":
                await self._unbatch(results)
                return None
            await self._wait(results)

    def _called(self, use: ModelUse) -> f.ModelCalled:
        purpose = Purpose("reviewer", subtask=self.spec.id, attempt=self.number)
        return f.ModelCalled(at=self.run.clock.now(), **asdict(purpose), **asdict(use))

    async def _unbatch(self, why: f.Failure) -> None:
        await self.run.warn_once(f"reviews can't be sent as a batch and cost the full price: {why.summary}")
        fact = f.ReviewUnbatched(at=self.run.clock.now(), subtask=self.spec.id, number=self.number, why=why.summary)
        await self.run.engine.record(fact)

    async def _wait(self, heard: object) -> None:
        """Wait until the next request to the service. Raises `DrainingError` if the run is draining."""
        if isinstance(heard, f.Failure):
            await self.run.warn_once(f"can't get the results of a review batch, will retry: {heard.summary}")
        left = self.run.settings.poll_s
        while left > 0:
            if self.run.engine.state.draining:
                raise DrainingError
            await sleep(min(left, SLICE_S))
            left -= SLICE_S


# ---- what the program is given ---------------------------------------------------------------------------------------


def open_reviews(fleet: Fleet, models: OpenModels, adapters: Adapters, engine: Recorder, budget: RunBudget) -> Reviews:
    """Create the reviews of a run. In a replay of history, only reviews requested in the plan are run."""
    section, state = fleet.config.of(Reviewer), engine.state
    if state.rehearsal is not None and not state.for_real:
        section = section.model_copy(update={"look_for": ""})
    return Reviews(engine, ClaudeReviewer(section, models), adapters.commits, adapters.clock, budget, section)


async def findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Report the configured reviewer, if there is one."""
    reviewer, planner = fleet.config.of(Reviewer), fleet.config.planner.model
    if reviewer.look_for.strip() or reviewer.model:
        model = reviewer.model or f"{planner} (or {fleet.config.models.worker}, if {planner} made the change)"
        which = "every change" if reviewer.look_for.strip() else "changes for which the plan requires a review"
        how = f"{counted(reviewer.votes, 'vote')}{', as batches' if reviewer.batch else ''}"
        yield Finding("reviewer", ok=True, says=f"{safe(model, limit=200)} reviews {which}, {how}")
