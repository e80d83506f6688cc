"""The stories of the runs that the corpus began with."""

from collections.abc import Sequence

from fleet.core.base.usage import Cost
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Ladder, MachineOffer, Machines, Policy, Rung
from fleet.core.plans.plan import PLANNER, Estimate, Plan
from fleet.core.plans.revision import Revision
from tests.dashboards.hostile import ASKED, FINDING, HOSTILE, VOTE, poisoned
from tests.dashboards.stories import busy_story, commit, ended_story, works
from tests.fleet.core.pretend import Pretend
from tests.fleet.core.story import WHO, Story, connected, failure, plan_of

STEPS = 4_000
RED = f.CheckRun(
    criterion="the gate", command="make test", passed=False, exit_code=2, output="1 failed\nboom", seconds=3
)
GREEN = f.CheckRun(criterion="it works", command="pytest", passed=True, output="7 passed", seconds=1.5, tests=7)


def hostile(facts: Sequence[f.Fact], poison: str) -> list[f.Fact]:
    """The facts with poison in every text; a subtask's id is checked where a plan comes in, so that it has none."""
    plans = [fact.plan.ids for fact in facts if isinstance(fact, f.RunStarted) and fact.plan is not None]
    added = [fact.revision for fact in facts if isinstance(fact, f.PlanRevised)]
    new = [
        each.id for revision in added for each in (*revision.add, *(s for split in revision.split for s in split.into))
    ]
    return [poisoned(fact, poison, names={*new, *(id_ for ids in plans for id_ in ids)}) for fact in facts]


def pretended(seed: int, policy: Policy, *, trouble: float = 0.3, areas: float = 0.0) -> list[f.Fact]:
    world = Pretend(seed=seed, policy=policy, trouble=trouble, areas=areas)
    for _ in range(STEPS):
        if world.state.ended:
            break
        world.step()
    return world.facts


# ---- what goes well -------------------------------------------------------------------------------------------------


def wide_ended() -> Story:
    story = Story(Policy(workers=100, batch=64), plan_of("base", *(f"part{n:03} needs base" for n in range(250))))
    story.now = 4
    story.landed("base")
    while busy := [subtask.id for subtask, _ in story.state.underway()]:
        story.now += 7
        for number, id_ in enumerate(busy[::10]):
            works(story, id_, 1 + number % 7, "bash pytest")
        story.landed(*busy)
    return story


def areas_open() -> Story:
    story = Story(Policy(workers=4, max_areas=4))
    story.now = 2
    plan = plan_of("core", "shop needs core", "docs")
    area = plan.subtasks[1].model_copy(update={"worker": PLANNER})
    story.planner_answers(add=(plan.subtasks[0], area, plan.subtasks[2]))
    works(story, "core", 1, "bash make")
    story.now = 9
    story.landed("core")
    if (call := next((c for c in story.facts_of(f.PlannerCalled) if c.area == "shop"), None)) is not None:
        added = Revision.model_validate(
            {"assessment": "two halves", "add": [s.model_dump() for s in plan_of("cart", "till needs cart").subtasks]}
        )
        story.happens(f.PlanRevised(at=story.now, call=call.call, by="planner", revision=added, area="shop"))
    return story


def rungs() -> Story:
    ladder = (
        Rung(model="small", effort="low", lands=0.6, dollars=0.01),
        Rung(model="large", effort="low", lands=0.86, dollars=0.13),
        Rung(model="large", effort="max", lands=0.8, dollars=0.9),
    )
    story = Story(Policy(rungs={"coder": Ladder(rungs=ladder)}), plan_of("api", "docs"))
    for id_ in ("api", "docs", "api"):
        story.now += 3
        works(story, id_, 2, "edit a.py")
        if id_ == "api" and story.current("api").number == 1:
            story.attempt_fails("api")
    story.landed("api", "docs")
    return story


def reviews() -> Story:
    story = Story(Policy(workers=2), plan_of("schema", "api"))
    story.now = 3
    works(story, "schema", 2, "edit auth.py")
    commit(story, "schema")
    story.happens(
        f.ReviewBatched(at=4, subtask="schema", number=1, asked=(ASKED,), cost=Cost(calls=1), batch="msgbatch_01"),
        f.ReviewUnbatched(at=5, subtask="schema", number=1, why="the service takes no batches"),
        f.ReviewVoted(at=6, subtask="schema", number=1, votes=(VOTE,)),
    )
    said = RED.model_copy(update={"criterion": "no secrets", "command": "", "review": True, "output": FINDING.problem})
    story.happens(
        f.AttemptFailed(at=7, subtask="schema", number=1, failure=failure("check", "a finding"), checks=(GREEN, said))
    )
    story.now = 8
    story.planner_answers(retry=[{"id": "schema", "guidance": "log nothing"}])
    story.now = 12
    works(story, "schema", 2, "edit auth.py")
    report = f.Report(status="done", summary="nothing is logged")
    story.happens(
        f.AttemptCommitted(at=13, subtask="schema", number=2, commit="2" * 40, paths=("auth.py",), report=report)
    )
    fine = VOTE.model_copy(update={"findings": (), "discarded": 0})
    settled = f.FindingSettled(subtask="schema", attempt=1, finding=FINDING, result="fixed")
    story.happens(
        f.ReviewVoted(at=14, subtask="schema", number=2, votes=(fine,)),
        f.FindingsSettled(at=14, subtask="schema", number=2, settled=(settled,)),
        f.AttemptVerified(at=14, subtask="schema", number=2, checks=(GREEN, said.model_copy(update={"passed": True}))),
    )
    return story


def relanding() -> Story:
    commits = {"api": "a" * 40, "docs": "d" * 40}
    again = f.Relanding(run="before", branch="main", since="s" * 40, result="e" * 40, commits=commits)
    story = Story(Policy(), plan_of("api", "docs"), relanding=again)
    story.now = 5
    story.work_is_done("api")
    story.attempt_fails("docs", kind="conflict")
    return story


def rehearsal() -> list[f.Fact]:
    story = Story(Policy(check_base=True), plan_of("one", "two"))
    task = f.PastTask(subtask="one", commit="1" * 40, parent="0" * 40, tests=("tests/test_one.py",))
    left_out = f.LeftOut(commit="9" * 40, title="bump", why="changes no code")
    story.facts[0] = story.facts[0].model_copy(
        update={"rehearsal": f.Rehearsal(for_real=True, head="1" * 40, tasks=(task,), left_out=(left_out,), seed=3)}
    )
    trials = (
        f.GateTrial(passed=True, seconds=2, processor_s=1.5, peak_bytes=10**8),
        f.GateTrial(passed=False, output="boom"),
    )
    story.happens(f.GateTried(at=1, command="make check", trials=trials, setup_s=4))
    story.happens(f.BaseChecked(at=2, base="base", checks=(GREEN,)))
    story.now = 4
    story.happens(f.RehearsalNoted(at=4, what="by_hand", subtask="two", text="adds a submodule: vendor/x"))
    works(story, "one", 3, "bash make check")
    story.landed("one")
    lost = ("tests/test_one.py::test_it",)
    story.happens(f.ResultScored(at=9, subtask="one", commit="5" * 40, passed=False, checks=(RED,), lost=lost))
    return story.facts


def from_an_issue() -> list[f.Fact]:
    story = ended_story()
    issue = f.IssueSource(
        reference="gh:acme/shop#12", url="https://forge.example/acme/shop/issues/12", title="VAT is wrong"
    )
    story.facts[0] = story.facts[0].model_copy(
        update={"issue": issue, "values": {"version": "v2"}, "gate": "make test"}
    )
    return story.facts


def incidents() -> Story:
    """Each way in which an incident is dealt with: a ladder, a split of a split, an area, a person, no one."""
    story = Story(Policy(workers=20, max_retries=1), now=1)
    plan = plan_of("climbs", "parts", "asked", "odd", "helped", "left")
    area = plan_of("auth", worker=PLANNER).subtasks
    story.planner_answers(add=(*plan.subtasks, *area, *plan_of("lint", failure_action="skip").subtasks))
    inside = Revision(assessment="one part", add=plan_of("login").subtasks)
    story.happens(f.PlanRevised(at=1, call=story.area("auth").open, by="planner", revision=inside, area="auth"))
    story.model_is_called("climbs", 0.01)
    story.now = 5
    story.attempt_fails("climbs", "transient")
    story.time_passes_to_the_next_wake()
    story.model_is_called("climbs", 0.02)
    story.attempt_fails("climbs")
    story.planner_answers(retry=[{"id": "climbs", "guidance": "use the other parser", "model": "opus"}])
    story.model_is_called("climbs", 0.04)
    story.now += 3
    story.landed("climbs")
    story.attempt_fails("parts", "too_complex")
    story.planner_answers(split=[{"id": "parts", "why": "two things", "into": plan_of("read", "write").subtasks}])
    story.landed("read")
    story.attempt_fails("write", "too_complex")
    story.planner_answers(split=[{"id": "write", "why": "still two", "into": plan_of("one", "two").subtasks}])
    story.landed("one", "two")
    story.attempt_fails("login")
    again = Revision.model_validate({"assessment": "again", "retry": [{"id": "login", "guidance": "otherwise"}]})
    call = story.area("auth").open
    story.happens(f.PlanRevised(at=story.now, call=call, by="planner", revision=again, area="auth"))
    story.model_is_called("asked", None)
    story.attempt_fails("asked")
    story.planner_answers(ask=[{"about": "asked", "question": "which?", "options": ["a", "b"]}])
    story.human_answers("q1", "use sqlite")
    story.planner_answers(retry=[{"id": "asked", "guidance": "sqlite"}])
    story.landed("asked")
    story.attempt_fails("odd")
    story.planner_answers(drop=[{"id": "odd", "why": "not worth it"}])
    story.attempt_fails("helped")
    story.happens(f.RetryRequested(at=story.now, subtask="helped", guidance="use sqlite", by=WHO))
    story.planner_answers()
    story.landed("helped")
    story.attempt_fails("lint")
    story.now += 7
    evidence = "".join(f"line {number}\n" for number in range(1_000))
    red = f.Failure(kind="check", summary="long words " * 50, evidence=evidence)
    story.happens(f.AttemptFailed(at=story.now, subtask="left", number=1, failure=red))
    return story


def standings() -> Story:
    """A subtask in every standing that there is."""
    story = Story(Policy(workers=20, max_attempts=2, budget_dollars=10, budget_minutes=60))
    names = "merged", "landing", "queued", "verifying", "running", "failed", "blocked", "escalated", "dropped", "split"
    story.planner_plans(*names, "waiting needs running", "last needs merged")
    story.model_is_called("merged", 2.5)
    story.landed("merged")
    story.happens(f.Paused(at=0, by=WHO))
    story.work_is_done("landing")
    report = f.Report(
        status="done", summary="did it", recommendations=("test more",), needs=("a key",), discovered=("a bug",)
    )
    story.happens(f.AttemptCommitted(at=0, subtask="verifying", number=1, commit="c", paths=("x",), report=report))
    story.attempt_fails("escalated", "transient")
    story.attempt_fails("dropped")
    story.attempt_fails("split")
    story.happens(f.Unpaused(at=0, by=WHO))
    story.planner_answers(
        drop=[{"id": "dropped", "why": "w"}],
        split=[{"id": "split", "why": "w", "into": plan_of("part").subtasks}],
        ask=[{"about": "escalated", "question": "which?", "options": ["a", "b"]}],
    )
    story.happens(f.Paused(at=0, by=WHO))
    story.attempt_fails("failed")
    story.attempt_fails("blocked", "ambiguous", f.Report(status="blocked", summary="?"))
    story.attempt_fails("last", "transient")
    story.time_passes(200)
    return story


def bisected() -> Story:
    """A commit is sent back with a conflict and a flake; then three are red together, and it is not known which."""
    story = Story(Policy(workers=8), plan_of("a", "b", "c", "d"))
    story.work_is_done("d")
    batch = story.state.landing.open_batches[0]
    out = f.Ejected(subtask="d", attempt=1, failure=failure("conflict", "two sides"))
    flake = GREEN.model_copy(update={"flaky": True, "passed": False})
    tip = story.state.tip
    story.happens(f.BatchTested(at=2, number=batch.number, tip=tip, ejected=(out,), red=True, checks=(flake,)))
    story.now = 3
    story.work_is_done("a", "b", "c")
    while not story.state.landing.suspects:
        probe = story.state.landing.open_batches[-1]
        story.happens(f.BatchTested(at=4, number=probe.number, tip=tip, red=True, checks=(RED,)))
    return story


def waits_for_an_answer() -> Story:
    """`web` failed and three others wait for it; nothing else can be done."""
    plan = plan_of("web", "docs needs web", "site needs docs", "app needs web", failure_action="ask")
    story = Story(Policy(max_attempts=2, answer_wait_s=600), plan, now=100)
    story.attempt_fails("web")
    story.time_passes(60)
    return story


def machines() -> Story:
    """Four subtasks on two nodes, two of them with a label; an attempt fails, one lands, and a node is lost."""
    offers = {"": MachineOffer(lands=True), "big": MachineOffer(labels=("gpu",), lands=True), "small": MachineOffer()}
    labelled = plan_of("x", "y", labels=("gpu",)).subtasks
    plan = Plan(goal="g", subtasks=(*plan_of("a", "b").subtasks, *labelled))
    story = Story(Policy(machines=Machines(offers=offers)), plan)
    big = connected("big", host="b.example", memory_bytes=8, checks=2, labels=("gpu",), skew_s=-3.5, lands=True)
    story.happens(big, connected("small", host="s.example", memory_bytes=8, workers=4, checks=2))
    for id_, where in (("a", "small"), ("b", "small"), ("x", "big")):
        story.worker_starts(id_, where)
    commit(story, "a")
    story.happens(f.AttemptVerified(at=1, subtask="a", number=1, checks=(GREEN.model_copy(update={"node": "big"}),)))
    story.batch_lands()
    story.is_published()
    story.attempt_fails("b", "infrastructure")
    story.happens(f.NodeLost(at=2, node="small", why="no route to host"))
    return story


def aborted() -> Story:
    """A subtask whose failure ends the run, and one whose part needed a person."""
    story = Story(Policy())
    story.planner_answers(add=(*plan_of("api", "docs").subtasks, *plan_of("db", failure_action="abort").subtasks))
    story.attempt_fails("api", "too_complex")
    story.planner_answers(split=[{"id": "api", "why": "w", "into": plan_of("read", "write").subtasks}])
    story.landed("read")
    story.attempt_fails("write")
    story.planner_answers(ask=[{"about": "write", "question": "how?"}])
    story.human_answers("q1")
    story.planner_answers(retry=[{"id": "write"}])
    story.landed("write")
    story.attempt_fails("db")
    return story


def partial() -> Story:
    """Waits for an answer that never comes, with a retry before; the gate is red from the base on."""
    policy = Policy(max_retries=3, check_base=True, allow_red_base=True)
    story = Story(policy, plan_of("api", "docs", "web needs api", failure_action="ask"))
    story.happens(f.BaseChecked(at=0, base="base", checks=(RED,)))
    story.model_is_called("api", 0.5)
    story.attempt_fails("api", "transient")
    story.time_passes_to_the_next_wake()
    story.landed("api")
    story.attempt_fails("docs")
    story.landed("web")
    story.time_passes(Policy().answer_wait_s)
    return story


def unproved() -> list[f.Fact]:
    """No sandbox, no gate, a simulated model, a step without a commit, a price that is not known; one is set aside."""
    story = Story(Policy(), plan_of("deploy", "api", "web"))
    story.happens(f.WorkerStarted(at=0, subtask="deploy", number=1))
    report = f.Report(status="done", summary="deployed")
    story.happens(
        f.AttemptUnchanged(at=0, subtask="deploy", number=1, report=report),
        f.AttemptVerified(at=0, subtask="deploy", number=1, checks=()),
    )
    story.now = 3
    story.attempt_fails("api", "internal")
    story.model_is_called("web", None)
    story.happens(
        f.WarningNoted(at=3, text="mind this"), f.RunEnded(at=9, ending="partial", why="api could not be carried out")
    )
    story.facts[0] = story.facts[0].model_copy(update={"simulated": True, "sandbox": "none", "gate": ""})
    return story.facts


def approved_again() -> Story:
    """Rejected, revised, approved, and revised once more while it runs."""
    plan = plan_of("api", "docs", "web", touches=("src/**",), estimate=Estimate(minutes=10, dollars=0.5))
    story = Story(Policy(review=True, reviewing="human"), plan)
    story.happens(f.PlanRejected(at=86_400, version=0, by=WHO, reason="docs first | <b>", subtasks=("api",)))
    story.now = 86_400
    story.planner_answers(revise=[{"id": "api", "depends_on": ["docs"]}])
    story.happens(f.PlanApproved(at=86_401, version=1, by=WHO, subtasks=("docs", "web")))
    story.landed("docs")
    story.attempt_fails("web")
    story.planner_answers(revise=[{"id": "web", "risk": "high"}], assessment="It is more than it seemed.")
    return story


# ---- what waits, stops and fails ------------------------------------------------------------------------------------


def approved_in_part() -> Story:
    story = Story(
        Policy(workers=2, review=True, reviewing="human"), plan_of("schema", "store needs schema", "docs", "ops")
    )
    story.now = 30
    story.happens(f.PlanGraded(at=30, version=1, warnings=("app.py is contended by 8 subtasks",)))
    story.happens(f.PlanApproved(at=31, version=1, by=WHO, subtasks=("schema",), left_out=("store", "docs", "ops")))
    story.happens(f.PlanRejected(at=32, version=1, by=WHO, reason="too wide", subtasks=("ops",)))
    works(story, "schema", 1, "bash ls")
    return story


def crashed() -> Story:
    story = busy_story()
    story.happens(f.CallsHeld(at=50, cost=Cost(calls=2, tokens=2000, dollars=0.2)))
    story.happens(f.EngineStarted(at=90, epoch=2, pid=2, host="here", version="1"))
    works(story, "money", 2, "bash pytest")
    return story


def refused() -> Story:
    story = Story(Policy(check_base=True), plan_of("api", "docs"))
    story.now = 6
    story.happens(f.BaseChecked(at=6, base="base", checks=(RED,)))
    story.happens(f.RunEnded(at=6, ending="failed", why="the base fails the gate"))
    return story


def base_is_red() -> Story:
    story = Story(Policy(check_base=True, allow_red_base=True), plan_of("api", "docs"))
    setup = f.SetupRun(
        commit="base", check=RED.model_copy(update={"criterion": "the set-up", "command": "npm ci"}), network=True
    )
    story.happens(f.SetupRan(at=1, setup=setup), f.BaseChecked(at=2, base="base", checks=(RED,)))
    story.now = 3
    works(story, "api", 2, "edit api.py")
    return story


def cancelled() -> Story:
    story = busy_story()
    story.now = 60
    story.happens(f.CancelRequested(at=60, by=WHO))
    story.happens(f.RunEnded(at=61, ending="cancelled", why=f"cancelled by {WHO}"))
    return story


def paused() -> Story:
    story = busy_story()
    story.happens(f.Paused(at=50, by=WHO))
    story.happens(f.LimitsChanged(at=52, by=WHO, workers=2, budget_dollars=9, budget_minutes=30))
    return story


def drained() -> Story:
    story = busy_story()
    story.happens(f.DrainRequested(at=50, by=WHO))
    story.happens(f.EngineStopped(at=58, why=f"drained by {WHO}"))
    return story


def asked() -> Story:
    story = Story(
        Policy(workers=2, max_attempts=1),
        plan_of("api", "docs", "site needs docs"),
    )
    story.now = 5
    works(story, "docs", 2, "edit a.md")
    story.attempt_fails("docs")
    ask = {"question": "Which tax rate?", "options": ("7 %", "19 %"), "evidence": "E\nmore of it"}
    story.happens(f.QuestionAsked.model_validate({"at": 7, "about": "docs", **ask}))
    story.happens(f.QuestionAsked(at=8, about=None, question="Go on?", planner=True))
    story.human_answers("q1", "19 %")
    return story


def service_is_limited() -> Story:
    story = busy_story()
    story.now = 50
    limited = f.ServiceChanged(
        at=50, scope="opus", condition="limited", why="HTTP 429 rate_limit_error: slow down", status=429
    )
    story.happens(limited, f.ServiceChanged(at=51, condition="limited", why="HTTP 529", status=529))
    story.time_passes(1_000)
    return story


def budget_is_used_up() -> Story:
    story = Story(Policy(workers=2, budget_dollars=0.1, budget_attempts=5), plan_of("api", "docs", "site needs docs"))
    story.now = 4
    works(story, "api", 1, "bash ls")
    works(story, "docs", 1, "bash ls")
    story.happens(f.CallRefused(at=5, why="the run's budget of $0.1 does not cover another call"))
    story.happens(
        f.CallLost(
            at=6, role="worker", model="m", cost=Cost(calls=1, tokens=1000, dollars=0.1), subtask="api", attempt=1
        )
    )
    story.landed("api")
    return story


def rolled_back() -> Story:
    plan = plan_of("deploy", "check needs deploy").model_copy(update={"rollback_plan": "back"})
    story = Story(Policy(max_attempts=1), plan, rollback=plan_of("undo"))
    story.now = 3
    story.landed("deploy")
    story.now = 8
    works(story, "check", 1, "bash curl")
    story.attempt_fails("check")
    return story


def told_what_to_do() -> Story:
    story = Story(Policy(workers=3), plan_of("api", "docs", "cli"))
    story.now = 3
    for id_ in ("api", "docs", "cli"):
        works(story, id_, 1, "bash ls")
    story.happens(f.InstructionGiven(at=4, subtask="api", text="use UTC", by=WHO, interrupt=True))
    story.happens(f.InstructionGiven(at=5, subtask="docs", text="in French", by=WHO))
    story.happens(f.InstructionRead(at=6, subtask="api", number=1, count=1))
    report = f.Report(status="done", summary="it is there already")
    story.happens(f.AttemptUnchanged(at=7, subtask="cli", number=1, report=report))
    return story


def work_is_lost() -> Story:
    story = ended_story()
    facts = [fact for fact in story.facts if not isinstance(fact, f.RunEnded)]
    again = Story(Policy(workers=4, max_attempts=2), plan_of("french", "spanish needs french", "docs"))
    again.now = facts[-1].at
    again.landed("french", "docs")
    again.happens(f.PublishFailed(at=again.now, tip="tip-1", why="fleet/r is checked out", not_before=again.now + 5))
    again.happens(
        f.WorkLost(
            at=again.now + 1, tip="base", commits=("1" * 40,), reland=("french",), redo=("docs",), unpublished=True
        )
    )
    return again


def empty() -> list[f.Fact]:
    return Story(Policy()).facts[:1]


def hostile_names() -> list[f.Fact]:
    facts = hostile(busy_story().facts, HOSTILE)
    return [facts[0].model_copy(update={"repository": f"/repo {HOSTILE}", "base_name": HOSTILE}), *facts[1:]]
