"""The main screen: the pages of a run, and the list of all runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType

from dashboards.terminal.agents_page import agents_page, nodes_page
from dashboards.terminal.base_screen import END, BaseScreen, Button
from dashboards.terminal.cost_page import cost_page
from dashboards.terminal.landing_page import incidents_page, landing_page
from dashboards.terminal.lines import Page, PageOptions, events_page
from dashboards.terminal.listing import Listing
from dashboards.terminal.overview_page import overview_page, runs_page
from dashboards.terminal.plan_page import plan_page
from fleet.read.agent_rows import ORDERS, AgentOrder
from fleet.read.follow import FollowedRun
from fleet.read.run import RunSnapshot

MOST_VISITED = 100  # pages in the history of Backspace
ROOMY = 100  # cells: minimum width for numbers in the tabs
RUNS, OVERVIEW, AGENTS, PLAN, LANDING, INCIDENTS, EVENTS, COST, NODES = range(9)
PAGES: dict[int, Callable[[FollowedRun, RunSnapshot, PageOptions], Page]] = {
    OVERVIEW: overview_page,
    AGENTS: agents_page,
    PLAN: plan_page,
    LANDING: landing_page,
    INCIDENTS: incidents_page,
    EVENTS: events_page,
    COST: cost_page,
    NODES: nodes_page,
}


TITLES = {
    RUNS: "Runs",
    OVERVIEW: "Overview",
    AGENTS: "Agents",
    PLAN: "Plan",
    LANDING: "Landing",
    INCIDENTS: "Incidents",
    EVENTS: "Events",
    COST: "Cost",
    NODES: "Nodes",
}


class MainScreen(BaseScreen):
    """The pages of a run. Each keeps its own cursor."""

    marks_rows: ClassVar[bool] = True

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "order", "Order", show=False),
        Binding("O", "reverse", "Reverse the order", show=False),
    ]

    def __init__(self) -> None:
        super().__init__((*PAGES, RUNS))
        self._order: AgentOrder = "busy"
        self._is_reversed = False
        self._visited: list[tuple[str, int]] = []
        """The history of runs and pages, latest last."""
        self._cursors: dict[int, int] = {}
        self._opened: frozenset[str] = frozenset()

    # ---- pages

    def page(self, run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
        if self.number == RUNS:
            return runs_page(self.fleet.all_runs(), options)
        return PAGES[self.number](
            run, snapshot, replace(options, order=self._order, is_reversed=self._is_reversed, opened=self._opened)
        )

    def tabs(self, snapshot: RunSnapshot) -> Sequence[Button]:
        figures, is_roomy = snapshot.figures, self.size.width >= ROOMY
        more = {
            AGENTS: figures.working,
            PLAN: figures.plan_version and f"v{figures.plan_version}",
            LANDING: figures.queued,
            INCIDENTS: figures.open_incidents and f"{figures.open_incidents} open",
            NODES: str(figures.nodes),
        }
        return [
            self.tab(number, f"{TITLES[number]} {(is_roomy and more.get(number)) or ''}".strip())
            for number in self.numbers
            if number != NODES or figures.has_nodes or self.number == NODES
        ]

    def keys(self, snapshot: RunSnapshot) -> Sequence[Button]:
        figures, needed = snapshot.figures, {need.what for need in snapshot.needs}
        buttons = []
        if marked := len(self.fleet.marked):
            buttons += [Button("Esc", f"unmark {marked}", "bold"), Button("r", "retry"), Button("x", "drop")]
        if "answer" in needed:
            buttons.append(Button("a", "answer", "attention"))
        if "approve" in needed:
            buttons += [
                Button("A", "approve", "attention"),
                Button("X", "reject", "attention"),
                Button("E", "edit plan", "attention"),
            ]
        if figures.is_over and figures.is_published and self.fleet.replay is None:
            buttons.append(Button("m", "merge the result", "bold"))
        if "resume" in needed and self.fleet.watched.loaded:
            buttons.append(Button("R", "resume", "attention"))
        buttons += [Button("?", "help"), Button("q", "leave"), Button("Enter", "open"), Button("/", "filter")]
        if self.number == AGENTS:
            buttons += [Button("o", "order"), Button("O", "reverse")]
        if self.fleet.replay is not None:
            buttons += [Button("Space", "pause"), Button(".", "step"), Button("+", "faster"), Button("-", "slower")]
        elif not figures.is_over:
            buttons += [Button("P", "unpause" if figures.is_paused else "pause"), Button("W", "workers")]
            buttons += [Button("B", "budget"), Button("C", "cancel")]
        return buttons

    def leave(self) -> None:
        if self.number != OVERVIEW:
            self.action_page(OVERVIEW)

    def action_page(self, number: int) -> None:
        if number in self.numbers and number != self.number:
            self._remember()
        self._turn_to(number)

    def _turn_to(self, number: int) -> None:
        self._cursors[self.number] = self.listing.cursor
        super().action_page(number)

    def _remember(self) -> None:
        self._visited = [*self._visited[1 - MOST_VISITED :], (self.fleet.watched.feed.run, self.number)]

    def action_previous(self) -> None:
        if not self._visited:
            self.notify("no previous page", markup=False)
            return
        run, number = self._visited.pop()
        if run != self.fleet.watched.feed.run:
            self.fleet.switch(run)
        self._turn_to(number)

    def open_run(self, run: str) -> None:
        """Show the overview of another run."""
        self._remember()
        self.fleet.switch(run)
        self._turn_to(OVERVIEW)

    def first_row(self, number: int) -> int:
        return END if number == EVENTS else self._cursors.get(number, 0)

    def action_order(self) -> None:
        names = list(ORDERS)
        self._order, self._is_reversed = names[(names.index(self._order) + 1) % len(names)], False
        self.refresh_view(cursor=0)

    def action_reverse(self) -> None:
        self._is_reversed = not self._is_reversed
        self.refresh_view(cursor=0)

    def on_listing_head_pressed(self, message: Listing.HeadPressed) -> None:
        """Sort the agents by the clicked column. A second click reverses the order."""
        order = next((name for name in ORDERS if name == message.title), None)
        if self.number == AGENTS and order is not None:
            self._is_reversed = order == self._order and not self._is_reversed
            self._order = order
            self.refresh_view(cursor=0)

    def text_to_copy(self) -> str:
        snapshot = self.fleet.watched.snapshot
        if self.listing.key == "take" and snapshot is not None and snapshot.figures.is_published:
            return f"fleet merge {snapshot.run}"
        return super().text_to_copy()

    # ---- opening

    async def on_listing_chosen(self, message: Listing.Chosen) -> None:
        kind, _, rest = message.key.partition(":")
        if kind.startswith("i"):
            self.fleet.open_incident(int(kind[1:]))
            return
        match "s" if kind.startswith("e") else kind:
            case "s":
                self.fleet.open_subtask(rest)
            case "planner":
                self.fleet.open_subtask("planner")
            case "v":
                self._opened ^= {message.key}
                self.refresh_view()
            case "run":
                self.open_run(rest)
            case "q":
                self.fleet.action_answer(rest)
            case "approve" | "resume" | "budget" | "pause" | "take":
                await self.app.run_action(kind)
            case _:
                pass
