"""Questions about one commit that many ask at once: whoever has a checkout asks for those who wait, too.

A hundred subtasks that begin on one base each want to know what their checks say of it. As long as that is quick, up
to eight of them share a checkout, and a box with it. Who asks first in a checkout has it to himself; what others did
there before may be why a command passes, so an answer says whether that could be.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from anyio import CapacityLimiter, Event

from fleet.core import facts as f
from fleet.core.plan import Criterion
from fleet.ports import Clock, Worktrees

SIDE_BY_SIDE = 8  # questions that share one checkout
SHARED_S = 1.0  # for so long a checkout takes one more: who has it waits for the others


@dataclass(slots=True, eq=False)
class Question:
    """One criterion, and what came of it."""

    criterion: Criterion
    answer: f.CheckRun | None = None
    shared: bool = False
    """Whether others asked in the same checkout before."""
    taken: bool = False
    """Whether it is being asked."""
    settled: Event = field(default_factory=Event)
    """It is no longer being asked: there is an answer, or nobody has it any more."""


@dataclass(slots=True)
class Together:
    """The questions of one run."""

    worktrees: Worktrees
    clock: Clock
    turns: CapacityLimiter
    """Of those who have a checkout."""
    _waiting: dict[str, deque[Question]] = field(default_factory=dict)

    async def ask(self, commit: str, criterion: Criterion) -> tuple[f.CheckRun, bool]:
        """What a check says of a commit, and whether others used its checkout before. Red is believed at once."""
        waiting, mine = self._waiting.setdefault(commit, deque()), Question(criterion)
        waiting.append(mine)
        try:
            async with self.turns:
                while mine.answer is None:
                    if mine.taken:
                        await mine.settled.wait()
                    else:
                        waiting.remove(mine)
                        await self._ask_for_all(commit, mine, waiting)
        finally:
            with suppress(ValueError):
                waiting.remove(mine)
            if not waiting and self._waiting.get(commit) is waiting:
                del self._waiting[commit]
        return mine.answer, mine.shared

    async def _ask_for_all(self, commit: str, mine: Question, waiting: deque[Question]) -> None:
        """In one checkout, mine first."""
        mine.taken = True
        asked = [mine]

        def criteria() -> Iterator[Criterion]:
            began = self.clock.now()
            yield mine.criterion
            while waiting and len(asked) < SIDE_BY_SIDE and self.clock.now() - began <= SHARED_S:
                one = waiting.popleft()
                one.taken, one.shared, one.settled = True, True, Event()
                asked.append(one)
                yield one.criterion

        def tell(run: f.CheckRun) -> None:
            asked[-1].answer = run
            asked[-1].settled.set()

        try:
            async with self.worktrees.lease(commit) as lease:
                await lease.check(criteria(), tell, believe_red=True)
        finally:
            if asked[-1].answer is None:  # it was not to be had here
                asked[-1].taken = asked[-1].shared = False
                asked[-1].settled.set()
                waiting.appendleft(asked[-1])
