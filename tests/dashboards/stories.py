"""Runs for pages: one of everything, all of it landed, machines, many subtasks, a plan that waits."""

from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.plans.limits import MachineOffer, Machines, Policy
from fleet.core.plans.plan import Plan
from tests.fleet.core.story import Story, connected, plan_of

CHECKS = (
    f.CheckRun(criterion="It greets", command="pytest tests/greet", passed=True, seconds=1.2, output="2 passed"),
    f.CheckRun(
        criterion="It is typed",
        command="mypy greet.py",
        passed=False,
        exit_code=1,
        seconds=0.4,
        output="greet.py:2: no",
    ),
)


def busy_story() -> Story:
    """A run in which a page finds one of everything: landed, running, waiting, failed, tested, red, asked."""
    story = Story(Policy(workers=8, budget_dollars=5, max_attempts=2, batch=4))
    story.now = 2
    lines = ("french", "spanish", "dates needs french", "money needs french spanish", "docs needs money", "web", "cli")
    story.planner_plans(*lines)
    for id_, turn, doing in (("web", 3, "edit web/index.html"), ("cli", 5, "bash pytest tests/cli")):
        story.now += 4
        works(story, id_, turn, doing)
    story.now = 14
    story.attempt_fails("spanish", kind="transient")
    story.time_passes_to_the_next_wake()
    story.now = 22
    story.landed("french", "spanish")
    works(story, "dates", 2, "str_replace_based_edit_tool greet.py")
    story.now = 30
    commit(story, "dates")
    story.happens(
        f.AttemptFailed(
            at=31, subtask="dates", number=1, failure=f.Failure(kind="check", summary="mypy fails"), checks=CHECKS
        )
    )
    story.now = 36
    story.work_is_done("cli", "web")
    batch = story.state.landing.open_batches[0]
    red = f.CheckRun(criterion="the gate", command="make test", passed=False, exit_code=2)
    story.happens(f.BatchTested(at=40, number=batch.number, tip=story.state.tip, red=True, checks=(red,)))
    story.now = 44
    works(story, "money", 1, "bash ls")
    story.planner_answers(
        assessment="dates needs a decision.",
        ask=[{"about": "dates", "question": "Which calendar?", "options": ["ISO"]}],
    )
    return story


def works(story: Story, id_: str, turn: int, doing: str) -> None:
    usage = Usage(input=4000, output=300)
    story.worker_starts(id_)
    story.model_is_called(id_, 0.05, model="claude-haiku-5-5", usage=usage, seconds=1.5, turn=turn, doing=doing)


def commit(story: Story, id_: str) -> None:
    report = f.Report(status="done", summary=f"{id_} is written")
    story.happens(
        f.AttemptCommitted(
            at=story.now, subtask=id_, number=1, commit="c0ffee" * 6, paths=(f"{id_}.py",), report=report
        )
    )


def ended_story() -> Story:
    """A run that landed, with a recovery on its way."""
    story = Story(Policy(workers=4, max_attempts=2), plan_of("french", "spanish needs french", "docs"))
    story.now = 5
    works(story, "french", 3, "edit greet.py")
    works(story, "docs", 2, "edit README.md")
    story.now = 9
    story.attempt_fails("french")
    story.planner_answers(retry=[{"id": "french", "guidance": "once more"}])
    story.now = 20
    works(story, "french", 4, "bash pytest")
    story.landed("french", "docs")
    story.now = 31
    works(story, "spanish", 2, "edit greet.py")
    story.landed("spanish")
    return story


def nodes_story() -> Story:
    """One node is at work, one is drained, one is out; a subtask waits for a label."""
    offers = {name: MachineOffer(labels=("gpu",) if name == "big" else ()) for name in ("", "big", "idle", "gone")}
    plan = Plan(goal="g", subtasks=(*plan_of("a", "b", labels=("gpu",)).subtasks, *plan_of("c").subtasks))
    story = Story(Policy(machines=Machines(offers=offers)), plan)
    for node in ("big", "idle"):
        labels = offers[node].labels
        story.happens(connected(node, host=f"{node}.example", labels=labels, lands=True, skew_s=2.5))
    story.happens(
        f.NodeDrained(at=0, node="idle", by="ada"),
        f.NodeLost(at=0, node="gone", why="no route to host"),
        f.WorkerStarted(at=1, subtask="a", number=1, node="big"),
        f.WorkerStarted(at=1, subtask="c", number=1),
    )
    return story


def wide_story() -> Story:
    """A run of 300 subtasks, of which many are under way."""
    story = Story(Policy(workers=60), plan_of("base", *(f"part{n:03} needs base" for n in range(299))))
    story.now = 4
    story.landed("base")
    busy = [subtask.id for subtask, _ in story.state.underway()]
    for number, id_ in enumerate(busy[:50]):
        story.now += 0.5
        works(story, id_, 1 + number % 7, "bash pytest")
    story.landed(*busy[:24])
    story.work_is_done(*busy[24:31])
    story.attempt_fails(busy[31])
    return story


def approval_story() -> Story:
    return Story(Policy(workers=2, review=True, reviewing="human"), plan_of("schema", "store needs schema"))
