"""Reviews of changes: when they are asked for, what a finding does, and that a batch is paid for once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from anyio import sleep_forever

from fleet.config.load import default_config
from fleet.core.base.ids import Sha
from fleet.core.base.usage import Cost
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion, Plan
from fleet.core.plans.revision import Retry, Revision
from fleet.core.state.state import RunState
from fleet.core.verdicts.suspicious_changes import Patch
from fleet.engine.adapters import Adapters
from fleet.engine.loop import Engine
from fleet.engine.reservations import RunBudget
from fleet.features.reviews.reviewer import BatchFound, BatchResults, ClaudeReviewer, ReviewBrief
from fleet.features.reviews.reviews import Reviews
from fleet.features.reviews.settings import Reviewer
from fleet.ports.agents import Meter, PlannerBrief
from fleet.ports.journal import Recorder
from tests.fleet.core.pretend import subtask_of
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import QUICK, USE, FakeFleet, FakePlanner, finishes, wait_until

SETTINGS = default_config().of(Reviewer)
REVIEW = Criterion(criterion="private", review="names that leave it")
FINDING = f.ReviewFinding(file="a.py", line=1, problem="a name leaves it", text="work of a-1")
UNKNOWN = f.Failure(kind="transient", summary="no connection")
Finds = Callable[[ReviewBrief], Sequence[f.ReviewFinding] | f.Failure]


def first_attempt_is_bad(brief: ReviewBrief) -> Sequence[f.ReviewFinding]:
    return (FINDING,) if brief.attempt == 1 else ()


@dataclass
class FakeReviewer:
    """Finds what `finds` says, one by one or as a batch."""

    finds: Finds = lambda _: ()
    most_chars: int = 1000
    sent: list[list[str]] = field(default_factory=list)
    """The ids of each batch."""
    lost: list[f.Failure] = field(default_factory=list)
    """What sending fails with, although the batch arrives if the failure has no status."""
    done: bool = True
    """Whether batches have ended."""
    out: int = 0
    """How often the service does not respond when it is asked for batches."""
    briefs: list[ReviewBrief] = field(default_factory=list)

    def model(self, named: str | None, worker: str | None) -> str:
        return named or ("critic" if worker != "critic" else "other")

    def too_large(self, patch: Patch) -> str | None:
        return "far too large" if len(patch.text) > self.most_chars else None

    async def review(self, brief: ReviewBrief, meter: Meter) -> f.Vote | f.Failure:
        self.briefs.append(brief)
        await meter.reserve(brief.asked.model, Cost())
        await meter.used(USE)
        return self._vote(brief)

    def _vote(self, brief: ReviewBrief) -> f.Vote | f.Failure:
        found, asked = self.finds(brief), brief.asked
        if isinstance(found, f.Failure):
            return found
        about = asked.model_dump(include={"criterion", "focus", "vote", "model"})
        return f.Vote(**about, findings=tuple(found))

    def most(self, briefs: Sequence[ReviewBrief]) -> Cost:
        return Cost(calls=len(briefs), tokens=10, dollars=0.005 * len(briefs))

    async def send(self, briefs: Sequence[ReviewBrief]) -> str | f.Failure:
        failure = self.lost.pop() if self.lost else None
        if failure is None or failure.status is None:
            self.sent.append([brief.asked.id for brief in briefs])
        return failure or f"b{len(self.sent)}"

    async def find(self, asked: Sequence[f.AskedVote], since: float) -> BatchFound | f.Failure:
        del since
        self.out -= 1
        if self.out >= 0:
            return UNKNOWN
        ids = [vote.id for vote in asked]
        return BatchFound(f"b{self.sent.index(ids) + 1}" if ids in self.sent else None)

    async def collect(self, batch: str, briefs: Mapping[str, ReviewBrief]) -> BatchResults | f.Failure | None:
        if not self.done:
            return None
        assert self.sent[int(batch[1:]) - 1] == list(briefs)
        votes = [vote for brief in briefs.values() if isinstance(vote := self._vote(brief), f.Vote)]
        return BatchResults(tuple(votes), tuple(replace(USE, dollars=0.005) for _ in briefs))


@dataclass
class ReviewedFleet(FakeFleet):
    """A run whose changes are reviewed."""

    reviewer: FakeReviewer = field(default_factory=FakeReviewer)
    settings: Reviewer = SETTINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        self.worktrees.diff = diff  # type: ignore[method-assign]

    def world(self) -> Adapters:
        def reviews(_: Adapters, engine: Recorder, budget: RunBudget) -> Reviews:
            return Reviews(
                engine, cast("ClaudeReviewer", self.reviewer), self.worktrees, self.clock, budget, self.settings
            )

        return replace(super().world(), reviews=reviews, reviews_all=bool(self.settings.look_for))


async def diff(base: Sha, commit: Sha) -> str:
    """A commit `c-a-1` adds the line `work of a-1`."""
    del base
    name = commit.removeprefix("c-")
    file = f"{name.rpartition('-')[0]}.py"
    return f"diff --git a/{file} b/{file}\n--- /dev/null\n+++ b/{file}\n@@ -0,0 +1 @@\n+work of {name}\n"


def planned(*ids: str, **more: object) -> Plan:
    plan = plan_of(*ids)
    with_review = (
        subtask.model_copy(update={"acceptance": (*subtask.acceptance, REVIEW.model_copy(update=more))})
        for subtask in plan.subtasks
    )
    return plan.model_copy(update={"subtasks": tuple(with_review)})


def failures(state: RunState) -> list[tuple[str, str]]:
    attempts = subtask_of(state, "a").attempts
    return [(attempt.failure.kind, attempt.failure.summary) for attempt in attempts if attempt.failure]


def retries(brief: PlannerBrief) -> Revision:
    failed = [each["id"] for each in brief.state["subtasks"] if each["status"] == "failed"]
    again = tuple(Retry(id=id_, guidance="mend it") for id_ in failed)
    return Revision(assessment="again", retry=again) if again else finishes(brief)


async def test_a_finding_is_evidence_for_the_next_attempt() -> None:
    fleet = ReviewedFleet(planned("a"), reviewer=FakeReviewer(first_attempt_is_bad), planner=FakePlanner(retries))
    state = await fleet.run()
    assert (state.ending, failures(state)) == ("landed", [("check", "reviewers found faults: private")])
    [(_, failure)] = fleet.worker.briefs[1].failures
    assert failure.evidence == "private (review by critic):\na.py:1: a name leaves it"
    assert [check.passed for check in subtask_of(state, "a").attempts[1].checks] == [True, True]
    assert set(state.settled.values()) == {"fixed"}
    assert (state.spend["reviewer"].calls, subtask_of(state, "a").attempts[0].spend.calls) == (2, 2)


async def test_a_reviewer_gets_the_subtask_and_the_change_and_nothing_that_its_worker_said() -> None:
    fleet = ReviewedFleet(planned("a"))
    await fleet.run()
    [brief] = fleet.reviewer.briefs
    assert (brief.subtask.id, brief.attempt, brief.asked.focus) == ("a", 1, REVIEW.review)
    assert brief.patch.text == "=== a.py\n     1 + work of a-1"
    assert "did it" not in repr(brief)


async def test_nothing_is_reviewed_whose_commands_fail() -> None:
    fleet = ReviewedFleet(planned("a", review="names"), Policy(**{**dict(QUICK), "max_attempts": 1}))
    fleet.worktrees.red.add("check a")
    state = await fleet.run()
    assert (failures(state)[0][0], fleet.reviewer.briefs) == ("check", [])


async def test_a_change_that_is_not_shown_as_a_whole_does_not_pass() -> None:
    fleet = ReviewedFleet(planned("a"), Policy(**{**dict(QUICK), "max_attempts": 1}))
    fleet.reviewer.most_chars = 5
    state = await fleet.run()
    assert (failures(state), fleet.reviewer.briefs) == ([("too_complex", "far too large")], [])


@pytest.mark.parametrize("kind", ["refusal", "protocol"])
async def test_a_change_that_could_not_be_reviewed_does_not_pass(kind: f.FailureKind) -> None:
    reviewer = FakeReviewer(lambda _: f.Failure(kind=kind, summary="no"))
    state = await ReviewedFleet(planned("a"), Policy(**{**dict(QUICK), "max_attempts": 1}), reviewer=reviewer).run()
    assert failures(state) == [(kind, "the review failed: no")]
    assert state.commits == 0


async def test_votes_stop_as_soon_as_they_decide() -> None:
    one_sees_it = FakeReviewer(lambda brief: (FINDING,) if brief.asked.vote == 2 else ())
    fleet = ReviewedFleet(planned("a", votes=3), reviewer=one_sees_it)
    state = await fleet.run()
    assert (state.ending, failures(state)) == ("landed", [])
    assert sorted(brief.asked.vote for brief in one_sees_it.briefs) == [1, 2, 3]
    assert set(state.settled.values()) == {"ignored"}
    agreed = ReviewedFleet(planned("a", votes=3))
    await agreed.run()
    assert len(agreed.reviewer.briefs) == 2


async def test_the_configuration_has_every_change_reviewed() -> None:
    fleet = ReviewedFleet(plan_of("a", "b"), settings=SETTINGS.model_copy(update={"look_for": "holes"}))
    state = await fleet.run()
    assert sorted((brief.subtask.id, brief.asked.focus) for brief in fleet.reviewer.briefs) == [
        ("a", "holes"),
        ("b", "holes"),
    ]
    assert state.ending == "landed"


async def test_a_model_that_reviews_its_own_work_is_reported_once() -> None:
    fleet = ReviewedFleet(planned("a", "b", model="m"))
    state = await fleet.run()
    same = [text for text in state.warnings if "is reviewed by m, the model that made the change" in text]
    assert sorted(text.split()[0] for text in same) == ["a", "b"]


# ---- batches --------------------------------------------------------------------------------------------------------

BATCHED = SETTINGS.model_copy(update={"batch": True, "poll_s": 0.01})


async def test_all_votes_go_out_as_one_batch_and_are_accounted_for() -> None:
    fleet = ReviewedFleet(planned("a", votes=3), settings=BATCHED)
    state = await fleet.run()
    assert ([len(ids) for ids in fleet.reviewer.sent], fleet.reviewer.briefs) == ([3], [])
    assert (state.ending, len(subtask_of(state, "a").attempts[0].votes), state.pending_reviews) == ("landed", 3, {})
    assert state.spend["reviewer"].priced_dollars == pytest.approx(0.015)


async def test_a_killed_run_takes_its_batch_up_again() -> None:
    fleet = ReviewedFleet(planned("a"), settings=BATCHED)
    fleet.reviewer.done = False
    await killed_once(fleet, lambda state: any(a.batch is not None and a.batch.batch for _, a in state.underway()))
    fleet.reviewer.done = True
    state = await fleet.run()
    assert (state.ending, len(fleet.reviewer.sent), state.spend["reviewer"].calls) == ("landed", 1, 1)
    assert fleet.worker.tried() == {"a": 1}


async def test_a_batch_whose_name_was_lost_in_a_crash_is_found_again() -> None:
    fleet = ReviewedFleet(planned("a"), settings=BATCHED)
    sent, forever = fleet.reviewer.send, sleep_forever

    async def send(briefs: Sequence[ReviewBrief]) -> str | f.Failure:
        await sent(briefs)
        await forever()
        raise AssertionError

    fleet.reviewer.send = send  # type: ignore[method-assign]
    await killed_once(fleet, lambda _: bool(fleet.reviewer.sent))
    fleet.reviewer.send = sent  # type: ignore[method-assign]
    state = await fleet.run()
    assert (state.ending, len(fleet.reviewer.sent), state.spend["reviewer"].calls) == ("landed", 1, 1)


async def test_a_batch_that_arrived_without_an_answer_is_not_sent_again() -> None:
    fleet = ReviewedFleet(planned("a"), settings=BATCHED, reviewer=FakeReviewer(lost=[UNKNOWN]))
    state = await fleet.run()
    assert (state.ending, len(fleet.reviewer.sent), fleet.reviewer.briefs) == ("landed", 1, [])


async def test_a_batch_that_can_not_be_looked_for_now_is_looked_for_later() -> None:
    fleet = ReviewedFleet(planned("a"), settings=BATCHED, reviewer=FakeReviewer(lost=[UNKNOWN], out=2))
    state = await fleet.run()
    assert (state.ending, len(fleet.reviewer.sent), fleet.reviewer.briefs) == ("landed", 1, [])
    assert state.warnings == ("can't get the results of a review batch, will retry: no connection",)


async def test_a_service_without_batches_is_asked_one_by_one() -> None:
    refused = f.Failure(kind="configuration", summary="HTTP 404", status=404)
    fleet = ReviewedFleet(planned("a"), settings=BATCHED, reviewer=FakeReviewer(lost=[refused]))
    state = await fleet.run()
    assert (state.ending, fleet.reviewer.sent, len(fleet.reviewer.briefs)) == ("landed", [], 1)
    assert state.warnings == ("reviews can't be sent as a batch and cost the full price: HTTP 404",)
    assert state.pending_reviews == {}


async def test_what_a_batch_does_not_answer_is_asked_again() -> None:
    once = [f.Failure(kind="other", summary="expired")]
    fleet = ReviewedFleet(planned("a"), settings=BATCHED)
    fleet.reviewer.finds = lambda _: once.pop() if once else ()
    state = await fleet.run()
    assert (state.ending, len(fleet.reviewer.sent), len(fleet.reviewer.briefs)) == ("landed", 1, 1)


async def test_a_batch_that_the_budget_does_not_cover_is_not_sent() -> None:
    policy = Policy(**{**dict(QUICK), "budget_dollars": 0.012})
    fleet = ReviewedFleet(planned("a"), policy, settings=BATCHED)
    state = await fleet.run()
    assert (fleet.reviewer.sent, state.commits, failures(state)[0][0]) == ([], 0, "spent")


async def test_a_drained_run_does_not_wait_for_a_batch() -> None:
    fleet = ReviewedFleet(planned("a"), settings=BATCHED)
    fleet.reviewer.done = False

    async def drain(engine: Engine) -> None:
        await wait_until(lambda: any(a.batch is not None and a.batch.batch for _, a in engine.state.underway()))
        await engine.record(f.DrainRequested(at=fleet.clock.now(), by="ada"))

    state = await fleet.run(drain)
    assert (state.ended, len(state.pending_reviews)) == (False, 1)
    fleet.reviewer.done = True
    state = await fleet.run()
    assert (state.ending, len(fleet.reviewer.sent)) == ("landed", 1)


class KilledError(Exception):
    """As a power cut: nothing is recorded after it."""


async def killed_once(fleet: FakeFleet, when: Callable[[RunState], bool]) -> None:
    """A life of the engine that ends in the middle."""

    async def kill(engine: Engine) -> None:
        await wait_until(lambda: when(engine.state))
        raise KilledError

    with pytest.raises(ExceptionGroup) as caught:
        await fleet.run(kill)
    assert caught.group_contains(KilledError)
