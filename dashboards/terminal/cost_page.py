"""The cost of a run: by role, by model, of failed attempts, and of the most expensive subtasks."""

from collections.abc import Iterable
from operator import itemgetter

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
from fleet.read.costs import AttemptCosts
from fleet.read.follow import FollowedRun
from fleet.read.run import RunSnapshot

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


def cost_page(run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
    width, whole = options.width, snapshot.figures.spent
    costs = run.derive("costs", snapshot.costs_key, lambda: snapshot.attempt_costs(MOST))
    roles = [(ROLES[role], spend) for role, spend in snapshot.spends.items()]
    models = sorted(((model_name(name), spend) for name, spend in costs.models.items()), key=itemgetter(0))
    rows: list[tuple[str, Line]] = [("", line) for line in _totals(snapshot, costs)]
    rows += [BLANK, *_table("BY ROLE", roles, whole, width)]
    if models:
        rows += [BLANK, *_table("BY MODEL, WORKERS", models, whole, width)]
    if costs.costliest:
        rows += [BLANK, ("", heading("MOST EXPENSIVE SUBTASKS", "press Enter to open one"))]
        rows += [(f"s:{id_}", _costly(snapshot, id_)) for id_ in costs.costliest]
    return page_of(rows, empty="No model calls yet.")


def _costly(snapshot: RunSnapshot, id_: SubtaskId) -> Line:
    dollars, tries = snapshot.spend_of(id_).priced_dollars, counted(snapshot.attempts_at(id_), "attempt")
    return ((f"  {money(dollars):>9}  ", "bold"), (safe(id_), ""), (f"  {tries}", "dim"))


def _totals(snapshot: RunSnapshot, costs: AttemptCosts) -> list[Line]:
    spent, left, landed = snapshot.figures.spent, snapshot.remaining, snapshot.result.commits
    lines: list[Line] = [(("spent      ", "dim"), (money(spent.dollars), "bold"))]
    if left is not None and left.dollars is not None:
        lines[0] += (("   projected total about ", "dim"), (money(left.dollars), "bold"))
    if landed and spent.dollars is not None:
        lines[0] += (("   per landed subtask ", "dim"), (money(spent.dollars / landed), "bold"))
    for budget in snapshot.budgets:
        used = budget.used / budget.limit if budget.limit else 1.0
        share = (f"{used:.0%} of {budget.limit:,.10g} {budget.unit}", "bad" if used >= 1 else "bold")
        lines.append((("budget     ", "dim"), share))
    if costs.failures:
        failed = costs.failed.priced_dollars
        share_of = f" ({failed / spent.priced_dollars:.0%})" if spent.priced_dollars else ""
        text = f"{money(failed)}{share_of} for {counted(costs.failures, 'failed attempt')}"
        lines.append((("failures   ", "dim"), (text, "")))
    if (doubt := snapshot.in_doubt).calls:
        text = f"up to {money(doubt.dollars)} more for {counted(doubt.calls, 'interrupted call')}"
        lines.append((("in doubt   ", "dim"), (text, "")))
    if estimates := snapshot.estimates:
        lines += [(("estimate   ", "dim"), (row, "")) for row in estimate_rows(estimates)]
    if snapshot.figures.simulated:
        lines.append((("simulated model: priced as if real", "dim"),))
    return lines


def _table(title: str, spends: Iterable[tuple[str, Spend]], whole: Spend, width: int) -> Rows:
    rows: list[tuple[str, Line]] = [("", heading(title)), ("", table_head(COLUMNS, width))]
    for name, spend in spends:
        usage, dollars = spend.usage, spend.priced_dollars
        share = dollars / whole.priced_dollars if whole.priced_dollars else 0.0
        cells = (
            (f"  {safe(name, limit=60)}", ""),
            (money(dollars), "bold"),
            (f"{share:.0%}", ""),
            (bar(round(100 * share), 100, 12), "busy"),
            (count(spend.calls), "dim"),
            (count(usage.prompt), "dim"),
            (f"{usage.cache_read / usage.prompt:.0%}" if usage.prompt else "-", ""),
            (count(usage.output), "dim"),
        )
        rows.append(("", table_row(COLUMNS, width, cells)))
    return rows
