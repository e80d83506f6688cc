"""What the run costs: by role, by model, what failed attempts cost, and which subtasks cost the most."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest

from dashboards.run_follower import WatchedRun
from dashboards.subtask_map import model_name
from dashboards.terminal.lines import (
    BLANK,
    Column,
    Line,
    Page,
    PageOptions,
    Rows,
    bar,
    heading,
    page_of,
    table_head,
    table_row,
)
from dashboards.text.formats import count, counted, money
from dashboards.text.plan_review import estimate_rows
from dashboards.text.safe import safe
from dashboards.text.summary import ROLES
from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Spend
from fleet.core.policy.budget import run_budgets
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Subtasks, SubtaskState
from fleet.read.estimate_view import remaining_view, run_estimates
from fleet.read.run_view import spend_by_role

COLUMNS = (
    Column("who", 14, grows=2),
    Column("cost", 9, to_right=True),
    Column("share", 6, to_right=True),
    Column(" ", 12, spare=3, grows=3),
    Column("calls", 7, spare=1, to_right=True),
    Column("read", 8, spare=2, to_right=True),
    Column("cached", 7, to_right=True),
    Column("written", 8, spare=2, to_right=True),
)
MOST = 10  # subtasks
COUNTED = ("calls", "read", "cached", "written", "dollars")


NANO = 1_000_000_000  # parts of a dollar: sums of whole numbers stay exact while they change


@dataclass(slots=True)
class CostBook:
    """What attempts cost: by model, in vain, by subtask. Only subtasks that changed are looked at again."""

    models: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By model and by what is counted: `calls`, `read`, `cached`, `written`, `dollars` in parts."""
    failed: int = 0
    failures: int = 0
    of: dict[SubtaskId, int] = field(default_factory=dict)
    """What each subtask cost, in parts of a dollar."""
    _seen: Subtasks | None = None

    def look(self, subtasks: Subtasks) -> None:
        before = self._seen
        changed = subtasks.values() if before is None else subtasks.changed_since(before)
        for subtask in changed:
            if before is not None and subtask.id in before:
                self._add(before[subtask.id], -1)
            self._add(subtask, 1)
        self._seen = subtasks

    def _add(self, subtask: SubtaskState, sign: int) -> None:
        whole = 0
        for attempt in subtask.attempts:
            spend, usage = attempt.spend, attempt.spend.usage
            parts = round(spend.priced_dollars * NANO)
            whole += parts
            if attempt.failure is not None:
                self.failed, self.failures = self.failed + sign * parts, self.failures + sign
            if spend.calls:
                name = model_name(attempt.model or attempt.worker)
                numbers = (spend.calls, usage.prompt, usage.cache_read, usage.output, parts)
                for kind, number in zip(COUNTED, numbers, strict=True):
                    self.models[name, kind] += sign * number
        self.of[subtask.id] = whole

    def dearest(self) -> list[tuple[float, SubtaskId]]:
        most = nlargest(MOST, ((parts, id_) for id_, parts in self.of.items() if parts > 0))
        return [(parts / NANO, id_) for parts, id_ in most]


def cost_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    width = options.width
    costs = run.derive("costs", state.run, CostBook)
    costs.look(state.subtasks)
    roles = {ROLES[role]: _amounts(spend) for role, spend in spend_by_role(state).items()}
    names = sorted({name for name, _ in costs.models if costs.models[name, "calls"]})
    models = {name: tuple(costs.models[name, kind] for kind in COUNTED) for name in names}
    rows: list[tuple[str, Line]] = [("", line) for line in _totals(run, state, costs)]
    rows += [BLANK, *_table("BY ROLE", roles, state.spent, width)]
    if models:
        rows += [BLANK, *_table("BY MODEL, WORKERS", models, state.spent, width)]
    if dearest := costs.dearest():
        rows += [BLANK, ("", heading("THE MOST EXPENSIVE SUBTASKS", "Enter opens one"))]
        rows += [
            (f"s:{id_}", ((f"  {money(dollars):>9}  ", "bold"), (safe(id_), ""), (f"  {_tries(state, id_)}", "dim")))
            for dollars, id_ in dearest
        ]
    return page_of(rows, empty="No model was called yet.")


def _totals(run: WatchedRun, state: RunState, costs: CostBook) -> list[Line]:
    spent = state.spent
    lines: list[Line] = [(("spent      ", "dim"), (money(spent.dollars), "bold"))]
    left = remaining_view(state, run.now, alive=run.alive)
    if left is not None and left.dollars is not None:
        lines[0] += (("   in all, as it goes, about ", "dim"), (money(left.dollars), "bold"))
    if state.commits and spent.dollars is not None:
        lines[0] += (("   for each landed subtask ", "dim"), (money(spent.dollars / state.commits), "bold"))
    for budget in run_budgets(state, run.now):
        used = budget.used / budget.limit if budget.limit else 1.0
        share = (f"{used:.0%} of {budget.limit:,.10g} {budget.unit}", "bad" if used >= 1 else "bold")
        lines.append((("budget     ", "dim"), share))
    if costs.failures:
        share_of = f" ({costs.failed / NANO / spent.priced_dollars:.0%})" if spent.priced_dollars else ""
        text = f"{money(costs.failed / NANO)}{share_of} for {counted(costs.failures, 'attempt')} that failed"
        lines.append((("failures   ", "dim"), (text, "")))
    if state.doubt.calls:
        text = f"up to {money(state.doubt.dollars)} more for {counted(state.doubt.calls, 'interrupted call')}"
        lines.append((("in doubt   ", "dim"), (text, "")))
    if estimates := run_estimates(state):
        lines += [(("estimate   ", "dim"), (row, "")) for row in estimate_rows(estimates)]
    if state.simulated:
        lines.append((("simulated model: priced as if it were real", "dim"),))
    return lines


def _amounts(spend: Spend) -> tuple[int, ...]:
    usage = spend.usage
    return spend.calls, usage.prompt, usage.cache_read, usage.output, round(spend.priced_dollars * NANO)


def _table(title: str, spends: Mapping[str, Sequence[int]], whole: Spend, width: int) -> Rows:
    rows: list[tuple[str, Line]] = [("", heading(title)), ("", table_head(COLUMNS, width))]
    for name, (calls, read, cached, written, parts) in spends.items():
        dollars = parts / NANO
        share = dollars / whole.priced_dollars if whole.priced_dollars else 0.0
        cells = (
            (f"  {safe(name, limit=60)}", ""),
            (money(dollars), "bold"),
            (f"{share:.0%}", ""),
            (bar(round(100 * share), 100, 12), "busy"),
            (count(calls), "dim"),
            (count(read), "dim"),
            (f"{cached / read:.0%}" if read else "-", ""),
            (count(written), "dim"),
        )
        rows.append(("", table_row(COLUMNS, width, cells)))
    return rows


def _tries(state: RunState, id_: SubtaskId) -> str:
    return counted(len(state.subtasks[id_].attempts), "attempt")
