"""What the operator tells a running attempt: recorded, read once by each life of it, and kept over any end."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from anyio import Event

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.revision import Retry, Revision
from fleet.engine.loop import Engine
from fleet.ports.agents import Meter, PlannerBrief, WorkerBrief, Workspace
from fleet.read.subtask_view import subtask_view
from tests.fleet.core.pretend import subtask_of
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import DONE, FakeFleet, finishes, wait_until


@dataclass
class ListeningWorker:
    """Reads until it is told to be done."""

    model: str | None = "m"
    read: list[tuple[int, str]] = field(default_factory=list)
    """What each attempt read."""
    fails: int = 0
    """How many of the first attempts fail when they are told `end`."""
    at_work: Event = field(default_factory=Event)

    async def run(self, brief: WorkerBrief, desk: Workspace, meter: Meter) -> f.Report | f.Failure:
        del desk, meter
        self.at_work.set()
        while "end" not in {words for number, words in self.read if number == brief.attempt}:
            while not brief.operator.has_news:
                await brief.operator.wait_told(len(brief.operator.told()))
            self.read += [(brief.attempt, each.text) for each in await brief.operator.read()]
        failed = f.Failure(kind="check", summary="red")
        return failed if brief.attempt <= self.fails else DONE


def told(text: str, *, subtask: str = "a", interrupt: bool = False) -> f.InstructionGiven:
    return f.InstructionGiven(at=1, subtask=subtask, text=text, by="ada", interrupt=interrupt)


def fleet_with(worker: ListeningWorker) -> FakeFleet:
    return FakeFleet(plan=plan_of("a"), worker=worker)


def telling(fleet: FakeFleet, worker: ListeningWorker, *texts: str) -> Callable[[Engine], Coroutine[Any, Any, None]]:
    async def beside(_: Engine) -> None:
        await worker.at_work.wait()
        for text in texts:
            fleet.memory.ask(told(text))
            await wait_until(lambda: text in {words for _, words in worker.read})  # noqa: B023 - it waits here

    return beside


async def test_each_instruction_reaches_the_attempt_once_and_in_order() -> None:
    worker = ListeningWorker()
    fleet = fleet_with(worker)
    state = await fleet.run(telling(fleet, worker, "one", "two", "end"))
    assert state.ending == "landed"
    assert worker.read == [(1, "one"), (1, "two"), (1, "end")]
    assert [fact.count for fact in fleet.memory.facts if isinstance(fact, f.InstructionRead)] == [1, 2, 3]
    [view] = [each for each in subtask_view(state, state.spec(SubtaskId("a")), 1).instructions if each.text == "two"]
    assert (view.by, view.read_by) == ("ada", (1,))


async def test_what_was_told_before_the_start_is_read_at_the_start() -> None:
    worker = ListeningWorker()
    fleet = fleet_with(worker)
    fleet.memory.ask(told("end"))
    await fleet.run()
    assert worker.read == [(1, "end")]


async def test_another_life_of_the_attempt_reads_it_again_and_whatever_came_meanwhile() -> None:
    """The conversation of the life before is gone, and with it what was in it."""
    worker = ListeningWorker()
    fleet = fleet_with(worker)

    async def dies(engine: Engine) -> None:
        await telling(fleet, worker, "one")(engine)
        await wait_until(lambda: any(isinstance(fact, f.InstructionRead) for fact in fleet.memory.facts))
        raise ZeroDivisionError

    try:
        await fleet.run(dies)
    except* ZeroDivisionError:
        pass
    assert worker.read == [(1, "one")]
    worker.read = []
    fleet.memory.ask(told("end"))  # no engine runs
    state = await fleet.run()
    assert worker.read == [(1, "one"), (1, "end")]
    assert len(subtask_of(state, "a").attempts) == 1
    assert [each.text for each in subtask_of(state, "a").attempts[0].instructions] == ["one", "end"]


async def test_the_next_attempt_reads_it_too() -> None:
    worker = ListeningWorker(fails=1)
    fleet = fleet_with(worker)
    fleet.memory.ask(told("end"))
    fleet.planner.plans = _retries_or_finishes
    state = await fleet.run()
    assert worker.read == [(1, "end"), (2, "end")]
    assert subtask_view(state, state.spec(SubtaskId("a")), 1).instructions[0].read_by == (1, 2)


def _retries_or_finishes(brief: PlannerBrief) -> Revision:
    if brief.state["subtasks"][0]["status"] == "failed":
        return Revision(assessment="again", retry=(Retry(id="a", guidance="try harder"),))
    return finishes(brief)


async def test_a_request_that_comes_too_late_is_refused_on_record() -> None:
    worker = ListeningWorker()
    fleet = fleet_with(worker)
    fleet.memory.ask(told("end"))
    await fleet.run()
    fleet.memory.ask(told("late"))
    fleet.memory.appends.append([f.RunReopened(at=fleet.clock.now(), by="ada")])
    state = await fleet.run()
    assert any("refused: a has landed" in text for text in state.warnings)


async def test_an_interrupting_one_wakes_who_waits_for_it() -> None:
    worker = ListeningWorker()
    woken = Event()

    @dataclass
    class Interrupted(ListeningWorker):
        async def run(self, brief: WorkerBrief, desk: Workspace, meter: Meter) -> f.Report | f.Failure:
            del desk, meter
            self.at_work.set()
            await brief.operator.wait_interrupt()
            woken.set()
            assert [each.text for each in await brief.operator.read()] == ["quiet", "stop"]
            assert not brief.operator.interrupts
            return DONE

    worker = Interrupted()
    fleet = fleet_with(worker)

    async def beside(engine: Engine) -> None:
        await worker.at_work.wait()
        fleet.memory.ask(told("quiet"))
        await wait_until(lambda: bool(subtask_of(engine.state, "a").instructions))
        assert not woken.is_set()
        fleet.memory.ask(told("stop", interrupt=True))

    assert (await fleet.run(beside)).ending == "landed"
