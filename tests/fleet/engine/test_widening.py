"""Reservations go beyond what calls usually cost only where the budget has room, and never let it be exceeded."""

import anyio
import anyio.lowlevel
import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost, Usage
from fleet.engine.reservations import CallMeter, Purpose, RunBudget
from fleet.ports.agents import ModelUse
from tests.fleet.engine.test_budget import Noon, ledger

USUAL, MOST = Cost(calls=1, tokens=10_000, dollars=0.1), Cost(calls=1, tokens=70_000, dollars=1.0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def meters(count: int, **limits: float) -> tuple[RunBudget, list[CallMeter]]:
    budget = RunBudget(ledger(**limits), Noon())
    return budget, [CallMeter(budget, Purpose("worker", subtask=SubtaskId(f"s{n}"), attempt=1)) for n in range(count)]


async def test_without_a_budget_every_call_may_take_its_full_length() -> None:
    _, all_of_them = meters(50)
    for meter in all_of_them:
        assert await meter.reserve("m", USUAL) is None
        assert await meter.widen(MOST) == 1.0


async def test_calls_under_way_hold_at_most_a_quarter_of_the_budget_beyond_what_is_usual() -> None:
    budget, all_of_them = meters(20, budget_dollars=10)
    shares = []
    for meter in all_of_them:
        assert await meter.reserve("m", USUAL) is None
        shares.append(await meter.widen(MOST))
    assert shares[:2] == [1.0, 1.0]
    assert shares == sorted(shares, reverse=True)
    held = budget.engine.state.held.dollars
    assert held is not None
    assert 20 * 0.1 + 2.4 < sum(0.1 + share * 0.9 for share in shares) <= 20 * 0.1 + 2.5


async def test_what_a_call_held_beyond_the_usual_is_free_again_once_it_has_ended() -> None:
    _, (first, second) = meters(2, budget_dollars=4)
    assert await first.reserve("m", USUAL) is None
    assert await first.widen(MOST) == 1.0
    assert await second.reserve("m", USUAL) is None
    assert await second.widen(MOST) < 0.1
    second.release()
    first.release()
    assert await second.reserve("m", USUAL) is None
    assert await second.widen(MOST) == 1.0


async def test_a_subtasks_budget_bounds_its_call_too() -> None:
    _, (meter,) = meters(1, subtask_dollars=0.28)
    assert await meter.reserve("m", USUAL) is None
    assert await meter.widen(MOST) == pytest.approx(0.1)  # half of the room of 0.18


async def test_a_budget_is_never_exceeded_however_long_answers_are_and_little_of_it_is_left() -> None:
    """Every call costs all that it was granted: the dearest run there is."""
    budget, all_of_them = meters(50, budget_dollars=10)
    state = budget.engine

    async def talk(meter: CallMeter) -> None:
        while await meter.reserve("m", USUAL) is None:
            share = await meter.widen(MOST)
            await anyio.lowlevel.checkpoint()
            assert state.state.spent.priced_dollars <= 10
            await meter.used(ModelUse("m", Usage(output=1), 0.1 + 0.9 * share, 0.1, 1, "bash"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for meter in all_of_them:
                tasks.start_soon(talk, meter)
    spent = state.state.spent.priced_dollars
    assert spent <= 10
    assert spent >= 10 - 0.1


async def test_an_interrupted_call_leaves_in_doubt_what_it_was_allowed_to_cost() -> None:
    budget, (meter,) = meters(1, budget_dollars=100)
    assert await meter.reserve("m", USUAL) is None
    assert await meter.widen(MOST) == 1.0
    meter.release(lost=True)
    assert budget.engine.state.doubt.dollars == pytest.approx(1.0)
