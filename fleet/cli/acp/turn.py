"""One turn of an editor's session: a run followed until it ends, or until only another prompt can continue it."""

import time
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
from acp import Client
from acp.helpers import update_agent_message_text, update_plan
from acp.schema import PlanEntry
from anyio import to_thread
from anyio.abc import TaskGroup

from dashboards.text.event_text import event_lines
from fleet.cli.acp.people import Matter, People, matters, only_elsewhere
from fleet.cli.acp.shown import ending_text, plan_entries, question_text
from fleet.cli.acp.text import as_code
from fleet.core.history.follower import Follower
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

POLL_S = 0.2


@dataclass(slots=True)
class Turn:
    """Follows one run. What it shows is read from the journal alone."""

    client: Client
    session: str
    folder: RunFolder
    people: People
    since: float = 0.0
    """What happened before is not shown again."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _lines: list[str] = field(default_factory=list)
    _plan: list[PlanEntry] = field(default_factory=list)
    _settled: set[tuple[object, ...]] = field(default_factory=set)
    _named: set[str] = field(default_factory=set)
    _asking: tuple[tuple[object, ...], anyio.CancelScope] | None = None
    _closing: str | None = None
    """What is said at the end of a turn that ends before its run does."""

    async def follow(self) -> None:
        """Show what happens, ask what a person has to decide, and say how it ended."""
        follower = Follower(self._note)
        with Journal(self.folder.journal) as journal:
            async with anyio.create_task_group() as tasks:
                while self._closing is None:
                    follower.catch_up(journal, lambda: False)
                    if not follower.loaded or follower.state is None:
                        await anyio.lowlevel.checkpoint()
                        continue
                    await self._show(follower.state)
                    if follower.state.ended or not self.folder.alive:
                        break
                    await self._ask_next(follower.state, tasks)
                    await anyio.sleep(POLL_S)
                tasks.cancel_scope.cancel()
            follower.catch_up(journal)
        if (state := follower.state) is not None:
            await self._show(state)
            closing = self._closing or ending_text(state, time.time(), alive=self.folder.alive)
            await self.say(closing)

    async def say(self, text: str) -> None:
        await self.client.session_update(session_id=self.session, update=update_agent_message_text(f"{text}\n\n"))

    def _note(self, _before: RunState | None, fact: f.Fact, state: RunState) -> None:
        if fact.at >= self.since:
            self._lines += event_lines(state, fact)

    async def _show(self, state: RunState) -> None:
        """Send what is new since the last look."""
        if self._lines:
            lines, self._lines = self._lines, []
            await self.say(as_code("\n".join(lines)))
        if (plan := plan_entries(state, time.time())) != self._plan:
            self._plan = plan
            await self.client.session_update(session_id=self.session, update=update_plan(plan))

    async def _ask_next(self, state: RunState, tasks: TaskGroup) -> None:
        """Ask one thing at a time; what was settled elsewhere is asked no longer."""
        waiting = matters(state)
        if self._asking is not None:
            key, scope = self._asking
            if all(matter.key != key for matter in waiting):
                scope.cancel()
            return
        if elsewhere := set(only_elsewhere(state)) - self._named:
            self._named |= elsewhere
            self._lines.append(
                f"of high risk, which no editor approves: {', '.join(sorted(elsewhere))}; "
                f"`fleet approve {self.folder.run} --only {min(elsewhere)}`"
            )
        unsettled = [matter for matter in waiting if matter.key not in self._settled]
        if not unsettled:
            return
        requested = {matter.key for matter in matters(await to_thread.run_sync(self.folder.requested_state))}
        for matter in unsettled:
            if matter.key not in requested:
                continue  # what was decided is on its way to the run
            if not self.people.can_ask(matter):
                self._closing = _by_prompt(matter)
                return
            scope = anyio.CancelScope()
            self._asking = (matter.key, scope)
            tasks.start_soon(self._ask, matter, scope)
            return

    async def _ask(self, matter: Matter, scope: anyio.CancelScope) -> None:
        with scope:
            if await self.people.ask(matter) == "dismissed":
                self._closing = _by_prompt(matter)
        self._settled.add(matter.key)
        self._asking = None


def _by_prompt(matter: Matter) -> str:
    """How a person decides what the editor did not ask, or what was dismissed."""
    if matter.question is not None:
        return f"{question_text(matter.question)}\n\nYour next message is the answer."
    return "The plan stays pending. `/approve` approves it, `/reject WHY` has the planner revise it."
