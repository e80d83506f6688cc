"""What the run costs: by role, by model, what failed attempts cost, and which subtasks cost the most."""

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
from fleet.core.base.usage import Spend
from fleet.read.costs import Amounts, CostBook, CostlySubtask, CostView
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
    width, book = options.width, run.derive("costs", snapshot.figures.run, CostBook)
    costs = snapshot.costs(book, most=MOST)
    roles = [(ROLES[role], amounts) for role, amounts in costs.roles.items()]
    models = sorted(((model_name(name), amounts) for name, amounts in costs.models.items()), key=itemgetter(0))
    rows: list[tuple[str, Line]] = [("", line) for line in _totals(costs)]
    rows += [BLANK, *_table("BY ROLE", roles, costs.spent, width)]
    if models:
        rows += [BLANK, *_table("BY MODEL, WORKERS", models, costs.spent, width)]
    if costs.costliest:
        rows += [BLANK, ("", heading("THE MOST EXPENSIVE SUBTASKS", "Enter opens one"))]
        rows += [(f"s:{each.id}", _costly(each)) for each in costs.costliest]
    return page_of(rows, empty="No model was called yet.")


def _costly(each: CostlySubtask) -> Line:
    tries = counted(each.attempts, "attempt")
    return ((f"  {money(each.dollars):>9}  ", "bold"), (safe(each.id), ""), (f"  {tries}", "dim"))


def _totals(costs: CostView) -> list[Line]:
    lines: list[Line] = [(("spent      ", "dim"), (money(costs.spent.dollars), "bold"))]
    if costs.in_all is not None:
        lines[0] += (("   in all, as it goes, about ", "dim"), (money(costs.in_all), "bold"))
    if costs.per_landed is not None:
        lines[0] += (("   for each landed subtask ", "dim"), (money(costs.per_landed), "bold"))
    for budget in costs.budgets:
        used = budget.used / budget.limit if budget.limit else 1.0
        share = (f"{used:.0%} of {budget.limit:,.10g} {budget.unit}", "bad" if used >= 1 else "bold")
        lines.append((("budget     ", "dim"), share))
    if costs.failures:
        share_of = f" ({costs.failed_share:.0%})" if costs.failed_share is not None else ""
        text = f"{money(costs.failed_dollars)}{share_of} for {counted(costs.failures, 'attempt')} that failed"
        lines.append((("failures   ", "dim"), (text, "")))
    if costs.in_doubt.calls:
        text = f"up to {money(costs.in_doubt.dollars)} more for {counted(costs.in_doubt.calls, 'interrupted call')}"
        lines.append((("in doubt   ", "dim"), (text, "")))
    if costs.estimates:
        lines += [(("estimate   ", "dim"), (row, "")) for row in estimate_rows(costs.estimates)]
    if costs.simulated:
        lines.append((("simulated model: priced as if it were real", "dim"),))
    return lines


def _table(title: str, spends: Iterable[tuple[str, Amounts]], whole: Spend, width: int) -> Rows:
    rows: list[tuple[str, Line]] = [("", heading(title)), ("", table_head(COLUMNS, width))]
    for name, amounts in spends:
        read, dollars = amounts.read, amounts.dollars
        share = dollars / whole.priced_dollars if whole.priced_dollars else 0.0
        cells = (
            (f"  {safe(name, limit=60)}", ""),
            (money(dollars), "bold"),
            (f"{share:.0%}", ""),
            (bar(round(100 * share), 100, 12), "busy"),
            (count(amounts.calls), "dim"),
            (count(read), "dim"),
            (f"{amounts.cached / read:.0%}" if read else "-", ""),
            (count(amounts.written), "dim"),
        )
        rows.append(("", table_row(COLUMNS, width, cells)))
    return rows
