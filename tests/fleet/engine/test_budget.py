"""The budget of a run: what calls may cost is reserved before they are made, over all conversations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost, Usage
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.state.state import RunState
from fleet.engine.reservations import CallMeter, Purpose, RunBudget
from fleet.ports.agents import ModelUse
from tests.fleet.core.story import Story, plan_of

S0 = SubtaskId("s0")

CALL = Cost(calls=1, tokens=1000, dollars=0.10)
USE = ModelUse(model="m", usage=Usage(input=100, output=10), dollars=0.01, seconds=1, turn=1, doing="bash")


class Noon:
    def now(self) -> float:
        return 0.0


@dataclass
class Ledger:
    """Records at once, as an engine with nothing else to do."""

    state: RunState
    facts: list[f.Fact] = field(default_factory=list)

    async def record(self, *facts: f.Fact) -> None:
        await self.propose(lambda _: facts)

    async def propose(self, facts: Callable[[RunState], Sequence[f.Fact]]) -> None:
        await anyio.lowlevel.checkpoint()
        self.note(*facts(self.state))

    def note(self, *facts: f.Fact) -> None:
        for fact in facts:
            self.facts.append(fact)
            self.state = evolve(self.state, fact)

    async def wait_instructed(self) -> None:
        await anyio.sleep_forever()

    def kinds(self) -> list[str]:
        return [fact.kind for fact in self.facts]


def ledger(**limits: float) -> Ledger:
    policy = Policy.model_validate({"workers": 50, **limits})
    return Ledger(Story(policy, plan_of(*(f"s{n}" for n in range(50)))).state)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_call_is_counted_and_what_was_set_aside_is_free_again() -> None:
    book = ledger(budget_dollars=0.15)
    meter = CallMeter(RunBudget(book, Noon()), Purpose("worker", subtask=S0, attempt=1))
    assert await meter.reserve("m", CALL) is None
    await meter.used(USE)
    assert await meter.reserve("m", CALL) is None
    assert book.state.spent.dollars == 0.01


async def test_calls_wait_for_each_other_where_not_all_fit_and_the_limit_is_never_passed() -> None:
    book = ledger(budget_dollars=0.355)
    budget = RunBudget(book, Noon())
    under_way, most = 0, 0

    async def one(number: int) -> None:
        nonlocal under_way, most
        meter = CallMeter(budget, Purpose("worker", subtask=SubtaskId(f"s{number}"), attempt=1))
        if await meter.reserve("m", CALL) is not None:
            return
        under_way += 1
        most = max(most, under_way)
        await anyio.sleep(0.001)
        under_way -= 1
        await meter.used(USE)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as all_of_them:
            for number in range(50):
                all_of_them.start_soon(one, number)
    assert most == 3
    assert book.state.spent.priced_dollars <= 0.355
    assert book.state.spent.calls == 26
    assert book.kinds().count("call_refused") == 1


async def test_the_journal_always_knows_enough_without_a_fact_for_every_call() -> None:
    book = ledger()
    budget = RunBudget(book, Noon())
    meters = [CallMeter(budget, Purpose("worker", subtask=SubtaskId(f"s{number}"), attempt=1)) for number in range(20)]
    for number, meter in enumerate(meters, 1):
        await meter.reserve("m", CALL)
        assert (book.state.held.dollars or 0) >= 0.1 * number - 1e-9
    assert book.kinds().count("calls_held") < 10
    before = len(book.facts)
    for _ in range(30):
        await meters[0].used(USE)
        await meters[0].reserve("m", CALL)
    assert book.kinds()[before:].count("calls_held") == 0


async def test_fewer_calls_under_way_leave_less_in_doubt() -> None:
    book = ledger()
    budget = RunBudget(book, Noon())
    meters = [CallMeter(budget, Purpose("worker", subtask=SubtaskId(f"s{number}"), attempt=1)) for number in range(20)]
    for meter in meters:
        await meter.reserve("m", CALL)
    for meter in meters:
        await meter.used(USE)
    await meters[0].reserve("m", CALL)
    assert (book.state.held.dollars or 0) < 0.3


async def test_a_call_that_is_stopped_under_way_is_in_doubt_and_one_that_was_refused_is_not() -> None:
    book = ledger()
    meter = CallMeter(RunBudget(book, Noon()), Purpose("planner", call=1))
    await meter.reserve("m", CALL)
    meter.release()
    assert book.state.doubt == Cost()
    await meter.reserve("m", CALL)
    meter.release(lost=True)
    meter.release(lost=True)
    assert book.state.doubt == CALL


async def test_a_refusal_ends_the_run_and_costs_the_attempt_nothing() -> None:
    book = ledger(budget_dollars=0.05)
    meter = CallMeter(RunBudget(book, Noon()), Purpose("worker", subtask=S0, attempt=1))
    failure = await meter.reserve("m", CALL)
    assert failure is not None
    assert (failure.kind, meter.may_call()) == ("spent", False)
    assert book.state.refused == "the run's budget of $0.05 does not cover another call"


async def test_a_subtasks_budget_stops_the_attempt_and_not_the_run() -> None:
    book = ledger(subtask_dollars=0.05)
    budget = RunBudget(book, Noon())
    meter = CallMeter(budget, Purpose("worker", subtask=S0, attempt=1))
    failure = await meter.reserve("m", CALL)
    assert failure is not None
    assert (failure.kind, budget.allows_calls(book.state), book.facts) == ("budget", True, [])
