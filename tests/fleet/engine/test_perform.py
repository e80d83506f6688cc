"""Doing: what each effect records, and what an earlier life of it left behind. The world is in memory."""

import errno
from contextlib import suppress

import pytest
from anyio import CancelScope, sleep

from fleet.core.base.ids import RunId, Sha
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion
from fleet.core.plans.revision import Revision
from fleet.core.state.state import RunState
from fleet.engine.checks import Gate
from fleet.engine.loop import Engine
from fleet.ports.agents import PlannerBrief, WorkerBrief
from fleet.ports.worktrees import EffectError
from tests.fleet.core.pretend import subtask, subtask_of
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import DONE, QUICK, FakeFleet, FakeIntegrator, FakePlanner, FakeWorker, finishes, wait_until

GATE = Gate((Criterion(criterion="the gate", run="without bad", fails_before=False),))


def failures(state: RunState, id_: str) -> list[tuple[str, str]]:
    attempts = subtask_of(state, id_).attempts
    return [(attempt.failure.kind, attempt.failure.summary) for attempt in attempts if attempt.failure]


async def test_an_epic_is_planned_built_landed_and_shown() -> None:
    def plans(brief: PlannerBrief) -> Revision:
        plan = plan_of("schema", "api needs schema")
        return Revision(assessment="two steps", add=plan.subtasks) if brief.call == 1 else finishes(brief)

    fleet = FakeFleet(planner=FakePlanner(plans), gate=GATE)
    state = await fleet.run()
    assert (state.ending, state.ending_why) == ("landed", "all of it")
    assert fleet.git.holds[fleet.git.published[-1]] == {"schema", "api"}
    assert fleet.git.published[-1] == state.tip == state.published
    assert fleet.planner.briefs[0].epic == "the epic"
    assert fleet.planner.briefs[0].workers == {"coder": "writes code"}
    assert state.spend["planner"].calls == state.planning.calls >= 2
    assert state.spend["worker"].calls == 2
    assert fleet.worktrees.out == 0


async def test_a_change_that_its_plan_wants_reviewed_does_not_land_where_nothing_can_review_it() -> None:
    wanted = (Criterion(criterion="private", review="names that leave it"),)
    state = await FakeFleet(plan_of("a", acceptance=wanted)).run()
    assert state.ending != "landed"
    assert failures(state, "a")[0] == ("configuration", "no model is available to review it")


# ---- what goes wrong -------------------------------------------------------------------------------------------------


async def test_a_machine_out_of_descriptors_is_not_a_bug_however_deep_it_shows() -> None:
    def works(brief: WorkerBrief) -> f.Report:
        if brief.attempt == 1:
            raise ExceptionGroup("tasks", [ExceptionGroup("tasks", [OSError(errno.EMFILE, "Too many open files")])])
        return DONE

    state = await FakeFleet(plan_of("a"), worker=FakeWorker(works)).run()
    assert (state.ending, failures(state, "a")) == (
        "landed",
        [("infrastructure", f"OSError: [Errno {errno.EMFILE}] Too many open files")],
    )


async def test_a_check_that_the_machine_broke_is_run_again_without_doing_the_work_again() -> None:
    fleet = FakeFleet(plan_of("a"))
    fleet.worktrees.broken_checks["c-a-1"] = 3
    state = await fleet.run()
    assert state.ending == "landed"
    assert fleet.worker.tried() == {"a": 1}
    assert state.incidents == ()


async def test_a_machine_that_stays_broken_costs_the_subtask_no_attempt() -> None:
    fleet = FakeFleet(plan_of("a"))
    fleet.worktrees.broken_checks["c-a-1"] = 4
    state = await fleet.run()
    assert failures(state, "a") == [("infrastructure", "no room for a box")]
    assert subtask_of(state, "a").counted == 0
    assert (state.ending, fleet.worker.tried()["a"]) == ("landed", 2)


async def test_what_landed_is_shown_one_tip_at_a_time() -> None:
    busy, most = 0, 0

    class Slow(FakeIntegrator):
        async def publish(self, run: RunId, tip: Sha) -> str | None:
            nonlocal busy, most
            busy, most = busy + 1, max(most, busy + 1)
            await sleep(0.05)
            busy -= 1
            return await super().publish(run, tip=tip)

    fleet = FakeFleet(plan_of("a", "b", "c", "d"), Policy(**{**dict(QUICK), "batch": 1}))
    fleet.integrator = Slow(fleet.git)
    state = await fleet.run()
    assert (state.ending, state.published, state.warnings) == ("landed", state.tip, ())
    assert most == 1


@pytest.mark.parametrize(
    ("report", "kind"),
    [
        (f.Report(status="failed", summary="too large", error_kind="too_complex"), "too_complex"),
        (f.Report(status="failed", summary="no compiler", error_kind="environment"), "tool"),
        (f.Report(status="failed", summary="?", error_kind="never heard of"), "other"),
        (f.Report(status="failed", summary="?"), "other"),
        (f.Report(status="blocked", summary="which port?", needs=("the port",)), "ambiguous"),
    ],
)
async def test_a_workers_own_word_for_its_failure_is_taken_for_what_it_means(report: f.Report, kind: str) -> None:
    fleet = FakeFleet(plan_of("a", failure_action="ask"), worker=FakeWorker(lambda _: report))
    state = await fleet.run()
    assert failures(state, "a") == [(kind, report.summary)]
    assert subtask_of(state, "a").counted == 1
    assert subtask_of(state, "a").attempts[0].report == report


async def test_a_claim_is_not_believed_when_the_checks_fail() -> None:
    fleet = FakeFleet(plan_of("a", failure_action="ask"))
    fleet.worktrees.red.add("check a")
    state = await fleet.run()
    assert failures(state, "a") == [("check", "does not pass: it works")]
    failure = subtask_of(state, "a").failure
    assert failure is not None
    assert failure.evidence == "$ check a\n(exit code 0)\nit says so"
    assert state.commits == 0


async def test_what_conflicts_and_what_makes_the_gate_red_goes_back_and_the_rest_lands() -> None:
    fleet = FakeFleet(plan_of("a", "bad", "torn", "b", failure_action="ask"), gate=GATE)
    fleet.integrator.conflicting.add("torn")
    state = await fleet.run()
    assert failures(state, "bad") == [("integration", "fails when merged with work that landed since: the gate")]
    assert failures(state, "torn") == [("conflict", "does not merge")] * 2
    assert [attempt.strategy for attempt in subtask_of(state, "torn").attempts] == ["first", "resolve"]
    assert fleet.git.holds[state.tip] == {"a", "b"}
    assert state.ending == "partial"


async def test_every_tip_the_branch_ever_had_passed_the_gate() -> None:
    names = ["a", "b", "bad", "c", "d"]
    fleet = FakeFleet(plan_of(*names, failure_action="ask"), gate=GATE)
    await fleet.run()
    advanced = [fact.tip for fact in fleet.memory.facts if isinstance(fact, f.BatchTested) and fact.landed]
    assert advanced
    for tip in advanced:
        assert (tip, "without bad") in fleet.worktrees.checked
        assert "bad" not in fleet.git.holds[tip]


async def test_a_branch_of_the_users_that_can_not_be_moved_is_a_warning_and_no_success() -> None:
    fleet = FakeFleet(plan_of("a"))
    fleet.integrator.refuses = "it is checked out"
    state = await fleet.run()
    assert (state.ending, state.published) == ("partial", None)
    assert state.warnings == ("the result branch could not be moved: it is checked out",)


# ---- the planner -----------------------------------------------------------------------------------------------------


async def test_a_revision_that_does_not_hold_together_is_answered_with_every_problem() -> None:
    def plans(brief: PlannerBrief) -> Revision:
        wrong = subtask("a", "nothing").model_copy(update={"worker": "codr"})
        return Revision(assessment="x", add=(wrong,)) if brief.call == 1 else finishes(brief)

    fleet = FakeFleet(planner=FakePlanner(plans))
    state = await fleet.run()
    assert [problem.path for problem in fleet.planner.problems[0]] == ["add[0].depends_on[0]", "add[0].worker"]
    assert state.plan.subtasks == ()
    (failed,) = [fact for fact in fleet.memory.facts if isinstance(fact, f.PlannerFailed)]
    assert (failed.failure.kind, failed.failure.summary) == ("protocol", "the planner ended without a revision")


async def test_a_planner_that_may_not_be_called_ends_the_run_with_its_reason() -> None:
    wrong_key = f.Failure(kind="configuration", summary="the key is not accepted")

    class Refused(FakePlanner):
        async def plan(self, *_: object) -> f.Failure:
            return wrong_key

    state = await FakeFleet(planner=Refused()).run()
    assert (state.ending, state.ending_why) == ("failed", "the key is not accepted")


async def test_the_next_attempt_learns_what_failed_what_others_did_and_what_the_planner_advises() -> None:
    def plans(brief: PlannerBrief) -> Revision:
        if brief.call == 1:
            return Revision(assessment="x", add=plan_of("schema", "api needs schema").subtasks)
        stuck = [row for row in brief.state["subtasks"] if row["status"] == "failed"]
        if stuck:
            again = [{"id": stuck[0]["id"], "guidance": "mind the gap"}]
            return Revision.model_validate({"assessment": "x", "retry": again})
        return finishes(brief)

    def works(brief: WorkerBrief) -> f.Report | f.Failure:
        if (brief.subtask.id, brief.attempt) == ("api", 1):
            return f.Failure(kind="budget", summary="all turns are spent")
        return DONE

    fleet = FakeFleet(planner=FakePlanner(plans), worker=FakeWorker(works))
    fleet.worktrees.notes = "run make first" + "!" * 50_000
    state = await fleet.run()
    assert state.ending == "landed"
    brief = fleet.worker.briefs[-1]
    assert (brief.subtask.id, brief.attempt, brief.guidance, brief.model) == ("api", 2, "mind the gap", "m")
    assert [(number, failure.kind) for number, failure in brief.failures] == [(1, "budget")]
    assert brief.results == (("schema", DONE),)
    assert brief.notes.startswith("run make first")
    assert len(brief.notes) == 20_000


async def test_what_a_failed_attempt_changed_is_kept_and_shown_to_the_next_one() -> None:
    def works(brief: WorkerBrief) -> f.Report | f.Failure:
        return DONE if brief.attempt > 1 else f.Failure(kind="budget", summary="all turns are spent", evidence="tail")

    again = {"failure_action": "retry"}
    fleet = FakeFleet(plan_of("a", **again), worker=FakeWorker(works))
    state = await fleet.run()
    first, second = subtask_of(state, "a").attempts
    assert (state.ending, first.kept, first.commit, second.kept) == ("landed", True, "c-a-1", False)
    [(_, failure)] = fleet.worker.briefs[-1].failures
    assert failure.evidence == f"tail\n\nThe change of that attempt:\n\n{first.base}..c-a-1"


async def test_a_worker_asks_the_budget_before_each_call() -> None:
    policy = Policy(**{**dict(QUICK), "workers": 1, "budget_dollars": 0.015})
    fleet = FakeFleet(plan_of("a", "b", "c"), policy)
    state = await fleet.run()
    assert fleet.worker.may_call == [True, False]
    assert (state.ending, state.commits) == ("budget", 2)


# ---- marks of an earlier life ----------------------------------------------------------------------------------------


async def test_work_that_was_pinned_before_a_crash_is_not_done_again() -> None:
    fleet = FakeFleet(plan_of("a"))
    first = FakeFleet(plan_of("a"), git=fleet.git)
    await first.run()
    fleet.git.branch[1:] = []
    fleet.memory.appends.append([fact for fact in first.memory.facts if fact.kind == "attempt_started"])
    state = await fleet.run()
    assert fleet.worker.briefs == []
    assert (state.ending, state.attempts, state.commits) == ("landed", 1, 1)
    report = subtask_of(state, "a").attempts[0].report
    assert report is not None
    assert report.summary == "finished before an interruption"


async def test_a_branch_that_moved_before_a_crash_is_recorded_as_landed_and_not_merged_twice() -> None:
    fleet = FakeFleet(plan_of("a", "b needs a"))
    await fleet.run()
    tested = next(index for index, fact in enumerate(fleet.memory.facts) if fact.kind == "batch_tested")
    fleet.memory.appends = [fleet.memory.facts[:tested]]
    fleet.git.branch[2:] = []
    merges = list(fleet.integrator.merges)
    state = await fleet.run()
    assert fleet.integrator.merges == [*merges, ("b",)]
    assert fleet.worker.tried()["a"] == 1
    assert (state.ending, state.commits) == ("landed", 2)
    assert [member.subtask for _, member in fleet.git.branch if member is not None] == ["a", "b"]


class Killed(Exception):  # noqa: N818 - it is what happened
    """The machine stops here."""


def kill_at(fleet: FakeFleet, transaction: int) -> None:
    """Nothing more reaches the disk from this transaction on."""

    def stop() -> None:
        if len(fleet.memory.appends) >= transaction:
            raise Killed

    fleet.memory.before_append = stop


@pytest.mark.parametrize("transaction", range(1, 16))
async def test_a_run_that_is_killed_before_any_transaction_lands_everything_once(transaction: int) -> None:
    fleet = FakeFleet(plan_of("a", "b needs a", "c"), gate=GATE)
    kill_at(fleet, transaction)
    with suppress(ExceptionGroup):
        await fleet.run()
    fleet.memory.before_append = lambda: None
    state = await fleet.run()
    assert (state.ending, state.commits, state.attempts) == ("landed", 3, 3)
    assert sorted(member.subtask for _, member in fleet.git.branch if member is not None) == ["a", "b", "c"]
    assert fleet.git.holds[fleet.git.published[-1]] == {"a", "b", "c"}
    assert max(fleet.worker.tried().values()) <= 2


async def test_a_run_that_is_killed_again_and_again_gets_there_all_the_same() -> None:
    fleet = FakeFleet(plan_of("a", "b needs a", "c"), gate=GATE)
    for _ in range(40):
        kill_at(fleet, len(fleet.memory.appends) + 2)
        with suppress(ExceptionGroup):
            await fleet.run()
    fleet.memory.before_append = lambda: None
    state = await fleet.run()
    assert (state.ending, state.commits, state.attempts) == ("landed", 3, 3)


# ---- stopping --------------------------------------------------------------------------------------------------------


async def test_a_cancelled_run_stops_its_workers_and_gives_back_their_worktrees() -> None:
    fleet = FakeFleet(plan_of("a", "slow"), worker=FakeWorker(slow={"slow"}))

    async def operator(engine: Engine) -> None:
        await wait_until(lambda: engine.state.published is not None)
        fleet.memory.ask(f.CancelRequested(at=fleet.clock.now(), by="ada"))

    state = await fleet.run(operator)
    assert (state.ending, state.commits) == ("cancelled", 1)
    assert fleet.worker.stopped == ["slow"]
    assert fleet.worktrees.out == 0


async def test_a_drained_run_waits_for_its_workers_and_lands_what_they_did() -> None:
    fleet = FakeFleet(plan_of("slow", "b needs slow"), worker=FakeWorker(slow={"slow"}))

    async def operator(engine: Engine) -> None:
        await wait_until(lambda: engine.state.working() == 1)
        fleet.memory.ask(f.DrainRequested(at=fleet.clock.now(), by="SIGINT"))
        await wait_until(lambda: engine.state.draining)
        fleet.worker.release()

    state = await fleet.run(operator)
    assert (state.ending, state.commits, fleet.worker.tried()) == (None, 1, {"slow": 1})
    assert (await fleet.run()).ending == "landed"


async def test_a_run_that_was_stopped_at_once_does_only_the_unfinished_work_again() -> None:
    fleet = FakeFleet(plan_of("a", "slow"), worker=FakeWorker(slow={"slow"}))
    with CancelScope() as stop:

        async def operator(engine: Engine) -> None:
            await wait_until(lambda: engine.state.published is not None and engine.state.working() == 1)
            stop.cancel()

        await fleet.run(operator)
    assert fleet.worktrees.out == 0
    fleet.worker.slow.clear()
    state = await fleet.run()
    assert (state.ending, state.attempts) == ("landed", 2)
    assert fleet.worker.tried() == {"a": 1, "slow": 2}


async def test_a_broken_planner_does_not_crash_the_run() -> None:
    class Down(FakePlanner):
        async def plan(self, *_: object) -> f.Failure | None:
            raise EffectError(f.Failure(kind="transient", summary="no route"))

    policy = Policy(**{**dict(QUICK), "max_planner_failures": 2})
    state = await FakeFleet(planner=Down(), policy=policy).run()
    assert (state.ending, state.ending_why) == ("failed", "no route")
