"""Questions about one base that many ask at once: few checkouts, and no answer that another's command may have made."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from anyio import CancelScope, CapacityLimiter, Event, create_task_group, wait_all_tasks_blocked

from fleet.checking import Checks, Gate
from fleet.core import facts as f
from fleet.core.plan import Criterion
from fleet.ports import Broken
from fleet.together import SIDE_BY_SIDE, Together
from tests.fleet.hands import Clock, PaperHands, PaperLease, queued


def criterion(number: int) -> Criterion:
    return Criterion(criterion=f"{number}", run=f"run {number}")


@dataclass
class SlowHands(PaperHands):
    """A checkout takes until it is allowed; the first ones may break."""

    open: Event = field(default_factory=Event)
    broken: int = 0

    @asynccontextmanager
    async def lease(self, base: str, about: Sequence[str] = ()) -> AsyncIterator[PaperLease]:
        async with super().lease(base, about) as lease:
            await self.open.wait()
            if self.leases <= self.broken:
                raise Broken(f.Failure(kind="infrastructure", summary="no room"))
            yield lease


@dataclass
class Slower:
    """A clock that goes on by two seconds each time it is looked at."""

    at: float = 0.0

    def now(self) -> float:
        self.at += 2
        return self.at


def red(*_: object) -> bool:
    return False


async def test_a_hundred_who_ask_about_one_base_share_checkouts_and_each_is_answered() -> None:
    hands, answers = SlowHands(passes=red), dict[int, str]()
    asked = Checks(queued("a"), hands, Clock(), Gate())

    async def ask(number: int) -> None:
        [run] = await asked.before("base", [criterion(number)])
        answers[number] = run.command

    async with create_task_group() as group:
        for number in range(100):
            group.start_soon(ask, number)
        await wait_all_tasks_blocked()
        hands.open.set()
    assert answers == {number: f"run {number}" for number in range(100)}
    assert sorted(hands.ran) == sorted(("base", f"run {number}") for number in range(100))
    assert hands.leases <= 100 / SIDE_BY_SIDE + Gate().slots


async def test_what_passes_where_others_were_before_is_asked_again_in_a_checkout_of_its_own() -> None:
    hands = PaperHands(passes=lambda _, command, time: command == "run 1" and time == 1)
    asked = Checks(queued("a"), hands, Clock(), Gate(slots=1))
    found = dict[int, f.CheckRun]()

    async def ask(number: int) -> None:
        [found[number]] = await asked.before("base", [criterion(number)])

    async with create_task_group() as group:
        for number in range(2):
            group.start_soon(ask, number)
    assert not found[1].passed
    assert hands.ran == [("base", "run 0"), ("base", "run 1"), ("base", "run 1")]
    assert hands.leases == 2


async def test_whoever_asks_slow_questions_waits_for_nobody_elses() -> None:
    hands = SlowHands(passes=red)
    together = Together(hands, Slower(), CapacityLimiter(1))
    async with create_task_group() as group:
        for number in range(5):
            group.start_soon(together.ask, "base", criterion(number))
        await wait_all_tasks_blocked()
        hands.open.set()
    assert (hands.leases, len(hands.ran)) == (5, 5)


async def test_where_a_checkout_breaks_only_who_asked_for_it_hears_of_it() -> None:
    hands, broke, answered = SlowHands(passes=red, broken=1), list[int](), list[int]()
    together = Together(hands, Clock(), CapacityLimiter(1))

    async def ask(number: int) -> None:
        try:
            await together.ask("base", criterion(number))
            answered.append(number)
        except Broken:
            broke.append(number)

    async with create_task_group() as group:
        for number in range(5):
            group.start_soon(ask, number)
        await wait_all_tasks_blocked()
        hands.open.set()
    assert (broke, sorted(answered)) == ([0], [1, 2, 3, 4])


@pytest.mark.parametrize("leaves", [0, 3])
async def test_who_is_stopped_while_it_asks_for_others_leaves_them_to_the_next(leaves: int) -> None:
    hands, scope, answered = SlowHands(passes=red), CancelScope(), list[int]()
    together = Together(hands, Clock(), CapacityLimiter(1))

    async def ask(number: int) -> None:
        with scope if number == leaves else CancelScope():
            await together.ask("base", criterion(number))
            answered.append(number)

    async with create_task_group() as group:
        for number in range(5):
            group.start_soon(ask, number)
        await wait_all_tasks_blocked()
        scope.cancel()
        await wait_all_tasks_blocked()
        hands.open.set()
    assert sorted(answered) == sorted({0, 1, 2, 3, 4} - {leaves})
