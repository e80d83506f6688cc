"""The loop: what is reported is recorded in groups, what is wanted is kept going, leaving is safe anywhere."""

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest
from anyio import CancelScope, create_task_group, fail_after, from_thread, get_cancelled_exc_class, sleep, sleep_forever

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Plan
from fleet.core.policy.effects import Command, Publish, RunAttempt, TestBatch, VerifyAttempt
from fleet.core.state.state import RunState
from fleet.engine.loop import Engine
from fleet.runs.journal import JournalError
from tests.fleet.core.pretend import attempt_at, checks_of, started, subtask_of
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import FakeMemory, RealClock, wait_until

Perform = Callable[[Command], Awaitable[None]]
REPORT = f.Report(status="done", summary="did it")
CLOCK = RealClock()
EPOCH = f.EngineStarted(at=CLOCK.now(), epoch=1, pid=1, host="here", version="1")


class Performing:
    """Performs by saying at once that it went well; attempts in `slow` never end."""

    def __init__(self, engine: Engine, *slow: str) -> None:
        self.engine = engine
        self.slow = slow
        self.begun: list[Command] = []
        self.stopped: list[Command] = []

    async def __call__(self, command: Command) -> None:
        self.begun.append(command)
        try:
            await self._perform(command)
        except get_cancelled_exc_class():
            self.stopped.append(command)
            raise

    async def _perform(self, command: Command) -> None:
        now, record = CLOCK.now(), self.engine.record
        match command:
            case RunAttempt(subtask=id_, number=number):
                await record(f.WorkerStarted(at=now, subtask=id_, number=number))
                if id_ in self.slow:
                    await sleep_forever()
                await record(
                    f.AttemptCommitted(at=now, subtask=id_, number=number, commit=id_, paths=(id_,), report=REPORT)
                )
            case VerifyAttempt(subtask=id_, number=number):
                await record(f.AttemptVerified(at=now, subtask=id_, number=number, checks=()))
            case TestBatch(number=number):
                await self.engine.propose(lambda state: landed(state, number))
            case Publish(tip=tip):
                await record(f.Published(at=now, tip=tip))
            case _:
                raise AssertionError(command)


def landed(state: RunState, number: int) -> Sequence[f.Fact]:
    """All of a batch, unless another one that was tested beside it has landed them."""
    batch = state.landing.open_batch(number)
    fact = f.BatchTested(at=CLOCK.now(), number=number, tip=f"tip-{number}", landed=batch.members if batch else ())
    return [fact] if batch else []


def engine_of(plan: Plan, memory: FakeMemory, policy: Policy | None = None) -> Engine:
    first = started(policy or Policy(workers=1000, batch=500), plan).model_copy(update={"at": CLOCK.now()})
    return Engine(memory.replayed(first), memory, CLOCK)


async def test_what_is_proposed_at_once_is_one_transaction() -> None:
    names = [f"s{number}" for number in range(200)]
    memory = FakeMemory()
    engine = engine_of(plan_of(*names), memory)
    state = await engine.run(Performing(engine), EPOCH)
    assert state.ending == "landed"
    assert state.commits == 200
    assert len(memory.facts) > 800
    assert len(memory.appends) < 40


async def test_record_returns_when_the_facts_are_on_disk_and_in_the_state() -> None:
    memory, disk = FakeMemory(), threading.Event()
    engine = engine_of(plan_of("a"), memory)
    seen: list[tuple[bool, bool]] = []

    async def perform(command: Command) -> None:
        if isinstance(command, RunAttempt):

            def slow_disk() -> None:
                assert disk.wait(10)

            memory.before_append = slow_disk
            note = f.WarningNoted(at=CLOCK.now(), text="it is so")
            async with create_task_group() as sides:
                sides.start_soon(_let_go)
                await engine.record(note)
            seen.append((disk.is_set() and note in memory.facts, "it is so" in engine.state.warnings))
            memory.ask(f.CancelRequested(at=CLOCK.now(), by="ada"))
        await sleep_forever()

    async def _let_go() -> None:
        await sleep(0.05)
        assert "it is so" not in engine.state.warnings
        disk.set()

    await engine.run(perform, EPOCH)
    assert seen == [(True, True)]


async def test_who_listens_is_told_of_each_fact_on_disk_with_the_states_around_it() -> None:
    memory, told = FakeMemory(), list[tuple[RunState | None, f.Fact, RunState]]()

    def listen(before: RunState | None, fact: f.Fact, after: RunState) -> None:
        assert fact in memory.facts
        told.append((before, fact, after))

    first = started(Policy(), plan_of("a")).model_copy(update={"at": CLOCK.now()})
    engine = Engine(memory.replayed(first), memory, CLOCK, listen)
    beginning = engine.state
    engine.begin_with([f.WarningNoted(at=CLOCK.now(), text="before the loop")])
    ending = await engine.run(Performing(engine), EPOCH)
    assert [fact for _, fact, _ in told] == memory.facts
    assert [before for before, _, _ in told] == [beginning, *(after for _, _, after in told[:-1])]
    assert told[-1][2] == ending == memory.replayed(first)


async def test_a_proposal_sees_what_the_one_before_it_changed() -> None:
    memory = FakeMemory()
    engine = engine_of(plan_of("a", "b"), memory)

    def once(state: RunState) -> Sequence[f.Fact]:
        return [] if state.warnings else [f.WarningNoted(at=CLOCK.now(), text="first")]

    async def perform(command: Command) -> None:
        await engine.propose(once)
        await Performing(engine)(command)

    state = await engine.run(perform, EPOCH)
    assert state.warnings == ("first",)


async def test_each_effect_is_begun_once_however_often_it_is_wanted() -> None:
    memory = FakeMemory()
    engine = engine_of(plan_of("a", "b needs a", "c needs b"), memory)
    performing = Performing(engine)
    await engine.run(performing, EPOCH)
    assert len(performing.begun) == len(set(performing.begun)) == 12


async def test_a_request_is_answered_and_one_that_makes_no_sense_is_refused_in_plain_sight() -> None:
    memory = FakeMemory()
    engine = engine_of(plan_of("a", "b"), memory)
    performing = Performing(engine, "a")

    async def people() -> None:
        await wait_until(lambda: engine.state.working() == 1 and engine.state.commits == 1)
        memory.ask(f.QuestionAnswered(at=CLOCK.now(), question="q9", answer="yes", by="ada"))
        memory.ask(f.Paused(at=CLOCK.now(), by="ada"))
        await wait_until(lambda: engine.state.paused)
        assert engine.state.warnings == ("refused: unknown question 'q9'",)
        assert memory.inbox == {}
        memory.ask(f.CancelRequested(at=CLOCK.now(), by="ada"))

    async with create_task_group() as sides:
        sides.start_soon(people)
        await engine.run(performing, EPOCH)
    assert engine.state.ending == "cancelled"


async def test_a_drained_engine_lets_what_runs_finish_and_leaves_the_rest_for_the_next() -> None:
    memory = FakeMemory()
    policy = Policy(workers=1)
    engine = engine_of(plan_of("a", "b"), memory, policy)
    memory.ask(f.DrainRequested(at=CLOCK.now(), by="SIGINT"))
    memory.before_append = lambda: None
    begun = Performing(engine)
    state = await engine.run(begun, EPOCH)
    assert not state.ended
    assert begun.stopped == []
    assert memory.facts[-1].kind == "engine_stopped"
    assert getattr(memory.facts[-1], "why", "") == "drained"
    second = engine_of(plan_of("a", "b"), memory, policy)
    ended = await second.run(Performing(second), EPOCH.model_copy(update={"epoch": 2}))
    assert ended.ending == "landed"


async def test_an_attempt_that_gave_up_waiting_is_left_for_the_next_engine() -> None:
    memory = FakeMemory()
    engine = engine_of(plan_of("a", "b"), memory)
    begun = Counter[Command]()

    async def perform(command: Command) -> None:
        begun[command] += 1
        if isinstance(command, RunAttempt) and command.subtask == "a":
            memory.ask(f.DrainRequested(at=CLOCK.now(), by="SIGTERM"))
            await wait_until(lambda: engine.state.draining)
            return  # its call would have to wait
        await Performing(engine)(command)

    state = await engine.run(perform, EPOCH)
    assert begun[attempt_at("a", 1)] == 1
    assert (state.ended, state.commits, [s.id for s, _ in state.running()]) == (False, 1, ["a"])
    second = engine_of(plan_of("a", "b"), memory)
    ended = await second.run(Performing(second), EPOCH.model_copy(update={"epoch": 2}))
    assert (ended.ending, ended.attempts) == ("landed", 2)


async def test_what_does_not_finish_within_the_drains_bound_is_stopped() -> None:
    memory = FakeMemory()
    engine = engine_of(plan_of("a"), memory, Policy(drain_s=0.3))
    stopped: list[Command] = []

    async def perform(command: Command) -> None:
        memory.ask(f.DrainRequested(at=CLOCK.now() + 1e6, by="SIGTERM"))  # its clock is wrong
        try:
            await sleep_forever()
        finally:
            stopped.append(command)

    with fail_after(20):
        state = await engine.run(perform, EPOCH)
    assert (stopped, state.ended) == ([attempt_at("a", 1)], False)


async def test_a_drain_while_something_runs_waits_for_its_landing() -> None:
    memory = FakeMemory()
    engine = engine_of(plan_of("a", "b needs a"), memory)

    async def perform(command: Command) -> None:
        if isinstance(command, RunAttempt):
            memory.ask(f.DrainRequested(at=CLOCK.now(), by="SIGINT"))
            await wait_until(lambda: engine.state.draining)
        await Performing(engine)(command)

    state = await engine.run(perform, EPOCH)
    assert (subtask_of(state, "a").landed, state.published) == ("a", "tip-1")
    assert subtask_of(state, "b").attempts == ()
    assert not state.ended


async def test_a_cancelled_run_stops_its_workers_but_not_the_batch_that_is_landing() -> None:
    memory = FakeMemory()
    engine = engine_of(plan_of("a", "slow"), memory)
    performing = Performing(engine, "slow")

    async def perform(command: Command) -> None:
        if isinstance(command, TestBatch):
            memory.ask(f.CancelRequested(at=CLOCK.now(), by="ada"))
            await wait_until(lambda: engine.state.cancelled)
        await performing(command)

    state = await engine.run(perform, EPOCH)
    assert state.ending == "cancelled"
    assert performing.stopped == [attempt_at("slow", 1)]
    assert (state.commits, state.published) == (1, "tip-1")


async def test_an_engine_that_is_stopped_at_once_records_it_and_the_run_can_be_resumed() -> None:
    memory = FakeMemory()
    engine = engine_of(plan_of("a", "slow"), memory)
    performing = Performing(engine, "slow")
    with CancelScope() as stop:
        async with create_task_group() as sides:

            async def impatient_operator() -> None:
                await wait_until(lambda: engine.state.published == "tip-1")
                stop.cancel()

            sides.start_soon(impatient_operator)
            await engine.run(performing, EPOCH)
    assert performing.stopped == [attempt_at("slow", 1)]
    assert getattr(memory.facts[-1], "why", "") == "stopped"
    again = engine_of(plan_of("a", "slow"), memory)
    second = Performing(again)
    state = await again.run(second, EPOCH.model_copy(update={"epoch": 2}))
    assert state.ending == "landed"
    assert second.begun[0] == attempt_at("slow", 1)
    assert attempt_at("a", 1) not in second.begun


async def test_nothing_is_begun_again_once_the_engine_is_stopped() -> None:
    """The stop comes while facts are written: that is shielded, and what was under way ends in the meantime."""
    memory = FakeMemory()
    engine = engine_of(plan_of("a", "slow"), memory)
    performing = Performing(engine, "slow")
    with CancelScope() as stop:

        def stopped_while_writing() -> None:
            if checks_of("a", 1) in performing.begun:
                from_thread.run_sync(stop.cancel)
                threading.Event().wait(0.1)  # the lanes end

        memory.before_append = stopped_while_writing
        await engine.run(performing, EPOCH)
    assert performing.stopped.count(attempt_at("slow", 1)) == 1
    assert performing.begun.count(attempt_at("slow", 1)) == 1


async def test_a_journal_that_can_not_be_written_ends_the_engine_with_its_reason() -> None:
    memory = FakeMemory()
    engine = engine_of(plan_of("a"), memory)

    def full() -> None:
        if memory.appends:
            raise JournalError("the disk is full; free some space, then `fleet resume`")

    memory.before_append = full
    with fail_after(20), pytest.raises(JournalError, match="the disk is full"):
        await engine.run(Performing(engine), EPOCH)
    assert engine.state.attempts == 1


async def test_an_ended_run_ends_at_once() -> None:
    memory = FakeMemory()
    engine = engine_of(plan_of("a"), memory)
    await engine.run(Performing(engine), EPOCH)
    again = engine_of(plan_of("a"), memory)
    performing = Performing(again)
    await again.run(performing, EPOCH.model_copy(update={"epoch": 2}))
    assert performing.begun == []
