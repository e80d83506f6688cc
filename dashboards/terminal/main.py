"""The main screen: the pages over one run, and the list of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from dashboards.terminal.agents import ORDERS, agents_page
from dashboards.terminal.banner import Button
from dashboards.terminal.incidents import incidents_page
from dashboards.terminal.landing import landing_page
from dashboards.terminal.lines import Page, Wish
from dashboards.terminal.listing import Listing
from dashboards.terminal.overview import events_page, needs, overview_page
from dashboards.terminal.planned import plan_page
from dashboards.terminal.runs import runs_page
from dashboards.terminal.view import View, tab

if TYPE_CHECKING:
    from dashboards.terminal.palette import Palette
    from dashboards.terminal.watched import Watched
    from fleet.core.state import RunState

ROOMY = 100  # cells, from which on the tabs have room for numbers
REVIEW = (Button("A", "approve", "warn"), Button("X", "reject", "warn"), Button("E", "edit plan", "warn"))
PAGES = ("runs", "overview", "agents", "plan", "landing", "incidents", "events")


class Main(View):
    """The pages. Each keeps its own cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"page({number})", page.title(), show=False) for number, page in enumerate(PAGES)),
        Binding("tab", "turn(1)", "Next page", show=False, priority=True),
        Binding("shift+tab", "turn(-1)", "Page before", show=False, priority=True),
        Binding("o", "order", "Order", show=False),
    ]

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self.number = 1
        self._order = "busy"
        self._cursors: dict[int, int] = {}
        self._open: frozenset[str] = frozenset()

    # ---- pages

    def page(self, watched: Watched, state: RunState, wish: Wish) -> Page:
        now = watched.now
        match PAGES[self.number]:
            case "runs":
                return runs_page(self.fleet.all_watched(), wish)
            case "agents":
                return agents_page(state, now, Wish(wish.needle, self._order, wish.height, wish.width))
            case "plan":
                return plan_page(state, now, Wish(wish.needle, "", wish.height, wish.width, self._open))
            case "landing":
                return landing_page(watched, state, now, wish)
            case "incidents":
                return incidents_page(state, now, wish)
            case "events":
                return events_page(watched, state, wish)
            case _:
                return overview_page(watched, state, now, wish)

    def tabs(self, state: RunState) -> Sequence[Button]:
        open_ = sum(incident.closed_at is None for incident in state.incidents)
        busy = sum(1 for _ in state.underway())
        more = {
            "agents": f" {busy}" if busy else "",
            "plan": f" v{state.plan.version}" if state.plan.version else "",
            "landing": f" {len(state.landing.queue)}" if state.landing.queue else "",
            "incidents": f" {open_} open" if open_ else "",
        }
        if self.size.width < ROOMY:
            more = {}
        return [tab(n, PAGES[n].title() + more.get(PAGES[n], ""), self.number) for n in (*range(1, len(PAGES)), 0)]

    def keys(self, watched: Watched, state: RunState) -> Sequence[Button]:
        asked = {need.key.partition(":")[0] for need in needs(watched, state, watched.now)}
        replayed = self.fleet.replay is not None
        first = [
            *([Button("a", "answer", "warn")] if "q" in asked else []),
            *(REVIEW if "approve" in asked else []),
            *([Button("R", "resume", "warn")] if "resume" in asked else []),
        ]
        playing = [Button("Space", "pause"), Button(".", "step"), Button("+", "faster"), Button("-", "slower")]
        acting = [
            Button("P", "go on" if state.paused else "pause"),
            Button("W", "workers"),
            Button("B", "budget"),
            Button("C", "cancel"),
        ]
        middle = playing if replayed else [] if state.ended else acting
        order = [Button("o", "order")] if self.number == PAGES.index("agents") else []
        return [
            *first,
            Button("?", "help"),
            Button("q", "leave"),
            Button("Enter", "open"),
            Button("/", "filter"),
            *order,
            *middle,
        ]

    def press(self, key: str) -> None:
        super().press("space" if key == "Space" else {"+": "plus", "-": "minus", ".": "full_stop"}.get(key, key))

    def leave(self) -> None:
        if self.number != 1:
            self.action_page(1)

    def action_page(self, number: int) -> None:
        self._cursors[self.number] = self.listing.cursor
        self.number = number
        start = 10**9 if PAGES[number] == "events" else 0
        self.refresh_view(cursor=self._cursors.get(number, start))

    def action_turn(self, by: int) -> None:
        if self.listing.has_focus:
            self.action_page((self.number + by) % len(PAGES))

    def action_order(self) -> None:
        names = list(ORDERS)
        self._order = names[(names.index(self._order) + 1) % len(names)]
        self.refresh_view(cursor=0)

    # ---- opening

    def on_listing_chosen(self, message: Listing.Chosen) -> None:
        kind, _, rest = self.key_here().partition(":")
        if message.key.startswith("i"):
            self.fleet.open_incident(int(message.key[1:].partition(":")[0]))
            return
        match kind:
            case "s":
                self.fleet.open_subtask(rest)
            case "planner":
                self.fleet.open_subtask("planner")
            case "v":
                self._open = self._open ^ {message.key}
                self.refresh_view()
            case "run":
                self.fleet.switch(rest)
                self.action_page(1)
            case "q":
                self.fleet.action_answer(rest)
            case "approve":
                self.fleet.action_approve()
            case "resume":
                self.fleet.action_resume()
            case "budget":
                self.fleet.action_budget()
            case "paused":
                self.fleet.action_pause()
            case _:
                pass
