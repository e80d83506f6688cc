"""One service of models as all callers together know it: its limits, whether it answers, and whose turn it is.

Nothing is called here. A caller asks for its turn, and tells what came of it; what people should know is kept as news.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import anyio

from agents.models.answer import Answer, CallFault, Headroom
from agents.models.door import SHARE, Condition, Door, Shut
from agents.models.pace import Pace, Ticket, family
from fleet.core.usage import Usage
from fleet.ports import CallGauges, Drained, Granted, Meter, ServiceNews

SLICE_S = 1.0  # how long a waiting caller goes without asking whether it still may
TICK_S = 0.001  # the shortest wait: less is lost in the digits of a clock
LAST_WAIT_S = 2.0  # how long a call of a run that is drained may wait for its turn
TOLD_S = 10.0  # a wait of this length is shown
LOOK_S = 0.5  # until the first knock at a service that fails
LEAST_S = 0.05  # a limit holds at least so long
SPREAD = 0.25  # of a wait, by which it may be longer


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The numbers that waits are made of."""

    longest_s: float
    """A server may ask for a longer wait; we look again after this one."""
    pause_s: float
    """How long a limit holds that names no time; doubled while it is met again."""
    faults: int = 3
    """Calls in a row without a beginning of an answer, until nobody calls any more."""


@dataclass(slots=True)
class _Family:
    """Who waits for one family of models."""

    pace: Pace
    door: Door
    turn: anyio.Lock = field(default_factory=anyio.Lock)


class Service:
    """The state of one base URL."""

    def __init__(self, rhythm: Rhythm, chance: Random, now: Callable[[], float] = anyio.current_time) -> None:
        self._rhythm = rhythm
        self._chance = chance
        self._now = now
        self._door = Door(rhythm.longest_s)
        self._families: dict[str, _Family] = {}
        self._news: list[ServiceNews] = []
        self._stirred = anyio.Event()
        self._words = 0
        self._calls = self._answers = self._waiting = self._underway = 0
        self._faults: Counter[str] = Counter()

    # ---- waiting

    async def turn(self, model: str, meter: Meter) -> Ticket | None:
        """When it is this caller's turn; None once its meter allows no further call. First come, first served.

        Raises `Drained` where the wait is long and its meter does not want it waited for.
        """
        mine, arrived = self._family(model), self._now()
        self._waiting += 1
        try:
            async with mine.turn:
                while meter.may_call():
                    wait = self._wait_s(mine, meter)
                    if wait <= 0:
                        return self._let_go(model, mine)
                    if not meter.may_wait() and self._is_long(wait, arrived):
                        raise Drained
                    stirred = self._stirred
                    with anyio.move_on_after(min(max(wait, TICK_S), SLICE_S)):
                        await stirred.wait()
        finally:
            self._waiting -= 1
        return None

    def _wait_s(self, mine: _Family, meter: Meter) -> float:
        """A door that is shut stops only those for whom waiting is worth it. A knock needs no room."""
        now = self._now()
        if meter.words() > self._words:  # a human says that it should go now
            self._words = meter.words()
            self._look_now(now)
        doors = [door for door in (self._door, mine.door) if door.shut is not None]
        waits = [door.wait_s(now) for door in doors if door.shut and meter.waits_for(door.shut.condition)]
        return max(*waits, mine.pace.not_before - now) if waits else mine.pace.wait_s(now)

    def _is_long(self, wait: float, arrived: float) -> bool:
        """Whether who came at `arrived` waits longer than the last calls of a run that is drained may."""
        now, until = self._now(), arrived + LAST_WAIT_S
        return now >= until or (math.isfinite(wait) and now + wait > until)

    def _look_now(self, now: float) -> None:
        for door in (self._door, *(group.door for group in self._families.values())):
            door.knock_at, door.asked_for = min(door.knock_at, now), True

    def _let_go(self, model: str, mine: _Family) -> Ticket:
        doors = [door for door in (self._door, mine.door) if door.shut is not None]
        for door in doors:
            door.knocking = True
        mine.pace.sent(self._now())
        self._calls += 1
        self._underway += 1
        return Ticket(family(model), knock=bool(doors), at=self._now())

    # ---- what came of a call

    def begun(self, ticket: Ticket, headroom: Headroom) -> None:
        """An answer begins: whoever is behind the door answers."""
        if ticket.begun:
            return
        ticket.begun = True
        mine = self._families[ticket.family]
        mine.pace.begun(headroom, self._now())
        self._door.faults = 0
        for scope, door in (("", self._door), (ticket.family, mine.door)):
            if door.shut is not None and ticket.at >= door.shut.since:
                self._open(scope, door)
        self._stir()

    def answered(self, ticket: Ticket, answer: Answer) -> None:
        self.begun(ticket, {})
        self._answers += 1
        self._over(ticket, answer.usage)

    def failed(self, ticket: Ticket, fault: CallFault) -> bool:
        """Whether it is everybody's trouble: then the caller waits again, and no try of its own is used."""
        self._faults[fault.kind] += 1
        if fault.kind not in {"limit", "outage", "refused"}:  # it answers, if only that the request is none
            self.begun(ticket, fault.headroom)
        self._over(ticket, fault.usage)
        match fault.kind:
            case "limit":
                self._limited(ticket, fault)
            case "outage":
                self._out(ticket, fault)
            case "refused":
                self._close("", self._door, "refused", fault, self._rhythm.longest_s, knock=ticket.knock, tell=True)
            case _:
                pass
        self._stir()
        return fault.kind in {"limit", "refused"} or (fault.kind == "outage" and self._door.shut is not None)

    def dropped(self, ticket: Ticket) -> None:
        """A call whose caller went away: nothing was learned from it."""
        self._over(ticket, None)
        self._stir()

    def _over(self, ticket: Ticket, usage: Usage | None) -> None:
        mine = self._families[ticket.family]
        self._underway -= 1
        if not ticket.begun:
            mine.pace.turned_away()
        mine.pace.ended(usage)
        if ticket.knock:
            self._door.knocking = mine.door.knocking = False

    def _limited(self, ticket: Ticket, fault: CallFault) -> None:
        mine, rhythm, now = self._families[ticket.family], self._rhythm, self._now()
        pace, asked = mine.pace, fault.retry_after_s
        pace.limited(fault.headroom, now)
        lasts = now - (pace.waited_since or now)
        least = SHARE * lasts + LEAST_S  # a server may say `retry-after: 0` for ever
        hold = self._longer(max(least, asked if asked is not None else rhythm.pause_s * self._chance.uniform(0.5, 1)))
        pace.not_before = max(pace.not_before, now + min(hold, rhythm.longest_s))
        if self._door.shut is not None and ticket.knock:  # it answers, if only that it is too much
            self._open("", self._door)
        if mine.door.shut is not None or max(hold, lasts) > TOLD_S:
            self._close(ticket.family, mine.door, "limited", fault, hold, knock=ticket.knock, tell=True)

    def _out(self, ticket: Ticket, fault: CallFault) -> None:
        door = self._door
        door.faults += 1
        wait = max(LOOK_S, min(fault.retry_after_s or 0.0, self._rhythm.longest_s))
        if door.shut is not None:
            self._close("", door, "down", fault, wait, knock=ticket.knock, tell=ticket.knock)
        elif door.faults >= max(
            self._rhythm.faults, sum(group.pace.knocking for group in self._families.values()) // 4
        ):
            self._close("", door, "down", fault, wait, knock=False, tell=False)  # told once a knock has failed, too

    def _close(
        self, scope: str, door: Door, condition: Condition, fault: CallFault, wait_s: float, *, knock: bool, tell: bool
    ) -> None:
        """Shut the door, or leave it shut: then only a knock's answer says something new."""
        now = self._now()
        if door.shut is None or door.shut.condition != condition:
            door.close(Shut(condition, fault.message, now), self._longer(min(wait_s, door.longest_s)))
        elif knock:
            door.stay_shut(fault.message, now, self._longer(min(wait_s, door.longest_s)))
        if tell and (not door.told or (knock and door.asked_for)):
            door.told, door.asked_for = True, False
            self._news.append(ServiceNews(scope, condition, fault.message, fault.status))

    def _open(self, scope: str, door: Door) -> None:
        if door.told and door.shut is not None:
            self._news.append(ServiceNews(scope, "up", door.shut.why))
        door.open()
        for group in self._families.values():
            group.pace.start_slowly()

    def _longer(self, seconds: float) -> float:
        """Never before the time that was asked for, and not all at once behind it."""
        return seconds * (1 + SPREAD * self._chance.random())

    # ---- for others

    def news(self) -> list[ServiceNews]:
        """What a person should know and nobody was told yet."""
        news, self._news = self._news, []
        return news

    def gauges(self) -> CallGauges:
        """How it is now, for whoever measures."""
        now = self._now()
        left = tuple(
            Granted(name, what, granted.limit, granted.left)
            for name, group in self._families.items()
            for what, granted in group.pace.headroom(now).items()
        )
        doors = {"": self._door, **{name: group.door for name, group in self._families.items()}}
        shut = {scope: door.shut.condition for scope, door in doors.items() if door.shut is not None}
        return CallGauges(self._calls, self._answers, dict(self._faults), self._underway, self._waiting, left, shut)

    def _family(self, model: str) -> _Family:
        name = family(model)
        if name not in self._families:
            self._families[name] = _Family(Pace(), Door(self._rhythm.longest_s))
        return self._families[name]

    def _stir(self) -> None:
        self._stirred.set()
        self._stirred = anyio.Event()
