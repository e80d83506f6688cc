"""The summary of a finished run: subtasks, incidents, totals, and the next commands to run."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dashboards.text.event_text import waiting_line
from dashboards.text.formats import (
    activity_of,
    counted,
    duration,
    figure_rows,
    kind_mark,
    money,
    rate,
    tokens,
    untested,
)
from dashboards.text.incident_text import base_lines, outcome, refusal_commands, reviews_line
from dashboards.text.safe import safe, safe_goal
from fleet.core.facts.facts import Role
from fleet.read.incident_view import IncidentRow, summaries_of
from fleet.read.question_view import reply_command
from fleet.read.run import RunSnapshot
from fleet.read.run_view import StatusView, SubtaskLine

TITLE = 58
ROLES: dict[Role, str] = {
    "planner": "planner",
    "sub_planner": "sub-planners",
    "worker": "workers",
    "resolver": "resolvers",
    "reviewer": "reviewers",
}
STATUS_SIGNS = {"merged": "✔", "split": "┬", "dropped": "-", "failed": "✘", "blocked": "✘", "escalated": "?"}


def summary_lines(run: RunSnapshot) -> list[str]:
    status = run.status
    lines = [f"{status.state.upper()}  {safe(run.run)}{kind_mark(status)}", safe_goal(status.goal, limit=110)]
    if status.why:
        lines.append(safe(status.why, limit=400))
    lines += ["", "Subtasks", *_subtask_lines(run.subtasks)]
    if incidents := sorted(run.incidents(), key=lambda each: each.number):
        lines += ["", "Failures and recovery", *map(_incident_line, incidents)]
    return [*lines, "", "Totals", *total_lines(run), "", "Next steps", *_step_lines(next_commands(run))]


def refusal_lines(run: RunSnapshot, logs: str) -> list[str]:
    """The summary of a refused run: the failure, advice, and the next commands to run."""
    steps = _step_lines(refusal_commands(run.base_check, safe(run.run)))
    base = (f"  {line}" for line in base_lines(run.base_check, logs=logs))
    return [f"REFUSED  {safe(run.run)}", *base, "", "Next steps", *steps]


def _step_lines(commands: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(command) for command, _ in commands)
    return [f"  {command:<{width}}  {purpose}" for command, purpose in commands]


def _subtask_lines(rows: Sequence[SubtaskLine]) -> Iterator[str]:
    width = min(TITLE, max((len(safe(row.title, limit=TITLE)) for row in rows), default=0))
    for row in rows:
        note = f"  {row.attempts} attempts" if row.attempts > 1 else ""
        if row.parts:
            note = f"  into {', '.join(map(safe, row.parts))}"
        note += "  no files changed" if row.unchanged else ""
        sha = f"  {safe(row.landed[:7])}" if row.landed and not row.unchanged else ""
        title = f"{safe(row.id):<18} {safe(row.title, limit=TITLE):<{width}}"
        yield f"  {STATUS_SIGNS.get(row.status, '·')} {title} {row.status}{sha}{note}"


def _incident_line(incident: IncidentRow) -> str:
    first, *others = summaries_of(incident)
    more = f" (+{len(others)} more)" if others else ""
    sign = "·" if incident.recovered is None else "✔" if incident.recovered else "✘"
    what, how = safe(first, limit=60), outcome(incident.recovered, incident.strategy)
    return f"  {sign} {safe(incident.subtask):<18} {incident.kind}: {what}{more}  →  {how}"


def total_lines(run: RunSnapshot) -> Iterator[str]:
    """The totals of a run, one per line."""
    status = run.status
    incidents, landing, landed = status.incidents, status.landing, status.commits
    batches = f"{counted(landing.batches, 'batch')} ({landing.red} red)"
    yield f"  recovered without a human  {rate(incidents.recovered, incidents.closed)}"
    yield f"  commits landed             {landed} in {batches}{untested(landed, status.commits_tested)}"
    if status.change_reviews is not None:
        yield f"  reviews                    {reviews_line(status.change_reviews)}"
    yield f"  agents                     peak {status.agents.peak}, limit {status.agents.limit}"
    yield from (f"  {title:<26} {value}" for title, value in figure_rows(status))
    for role, used in status.tokens.items():
        yield f"  {ROLES[role]:<26} {tokens(used)}, {money(status.cost_by_role[role])}"
    yield f"  cost                       {_cost(status)}"
    yield f"  time                       {duration(status.seconds)}"
    if status.never_passed and landed:
        gate = ", ".join(safe(command, limit=70) for command in status.never_passed)
        yield f"  gate                       NEVER GREEN: {gate} failed on the base and on every landed commit"
    yield from (f"  WAITING                    {safe(outage.message, limit=200)}" for outage in run.outages)
    if status.gate == "":
        yield "  gate                       NONE: only the subtasks' own checks ran"
    if status.sandbox == "none":
        yield "  sandbox                    NONE: commands ran with your permissions"


def _cost(status: StatusView) -> str:
    cost, doubt = money(status.cost_dollars), status.cost_in_doubt
    if status.commits and status.cost_dollars:
        cost += f", {money(status.cost_dollars / status.commits)} per landed subtask"
    if status.simulated:
        cost += " (simulated: priced as if real)"
    if doubt.calls:
        cost += f", and up to {money(doubt.dollars)} more for {counted(doubt.calls, 'interrupted call')}"
    return cost


def next_commands(it: RunSnapshot) -> list[tuple[str, str]]:
    """The next commands to run, each with its purpose."""
    run, status = safe(it.run), it.status
    commands = [(f"fleet show SUBTASK --run {run}", "attempts, checks and failures of one subtask")]
    if status.result_branch is not None:
        changes = f"git log --oneline {safe(status.base[:7])}..{safe(status.result_branch)}"
        commands = [
            (changes, "the result branch in your repository"),
            (f"fleet merge {run}", "merge it into your current branch"),
            *commands,
        ]
    if it.relanding is not None:
        result, into = safe(it.relanding.run), safe(it.relanding.branch)
        commands = [
            (f"fleet merge {result} --into {into}", "merge the landed commits, or continue the merge"),
            *commands,
        ]
    if status.state != "landed":
        if pending := status.waiting_for_approval:
            commands.append((f"fleet approve {run}", f"approve {safe(', '.join(pending), limit=60)}"))
        commands += [(f"{safe(q.command)} --run {run}", safe(q.question, limit=70)) for q in status.questions]
        commands.append((f"fleet resume {run}", "continue the run"))
    return commands


# ---- live ------------------------------------------------------------------------------------------------------------
# A run in progress on a terminal: events scroll by, and a few lines below them show its current state.


AGENTS = 8  # rows of agents, plus a count of the others
QUESTIONS = 3
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class LiveScreen:
    """The lines at the bottom of the terminal. Untrusted text is never interpreted as markup."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True, auto_refresh=False)
        self._ticks = 0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Hide the changing lines during a prompt."""
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def event(self, line: str) -> None:
        self._live.console.print(Text(line), soft_wrap=True)

    def show(self, run: RunSnapshot) -> None:
        self._ticks += 1
        self._live.update(self._screen(run), refresh=True)

    def _screen(self, run: RunSnapshot) -> RenderableType:
        figures = run.figures
        landed = figures.landed
        spinner = SPINNER[self._ticks % len(SPINNER)]
        unsafe = "  NO SANDBOX" if figures.sandbox == "none" else ""
        head = Text(f"{spinner} {safe(run.run)}  {run.word}{kind_mark(figures)}{unsafe}", style="bold")
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(total=max(1, landed.total), completed=landed.done, width=40), Text(f"{landed} landed"))
        rows: list[RenderableType] = [head, bar, Text(_totals(run)), *self._agents(run)]
        rows += [Text(f"! {waiting_line(out.message, out.seconds)}", style="bold yellow") for out in run.outages]
        for q in run.question_lines()[:QUESTIONS]:
            text = f"? {q.id}: {safe(q.text, limit=240)}  →  {safe(reply_command(q))}"
            rows.append(Text(text, style="bold yellow"))
        return Group(*rows)

    def _agents(self, run: RunSnapshot) -> Iterable[Text]:
        rows = run.agents()
        most = AGENTS + sum(agent.subtask is None for agent in rows)
        for agent in rows[:most]:
            activity = safe(activity_of(agent), limit=100)
            if agent.since is None:
                yield _one_line(f"  {'planner':<18} {safe(agent.call_why)}  {activity}", style="cyan")
            else:
                turn, age = f"turn {agent.turn}  {activity}" if agent.turn else "", duration(run.now - agent.since)
                yield _one_line(f"  {safe(agent.subtask, limit=18):<18} {agent.phase:<9}{age:>6}  {turn}")
        if len(rows) > most:
            yield Text(f"  … and {len(rows) - most} more")


def _one_line(text: str, *, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _totals(run: RunSnapshot) -> str:
    figures, left = run.figures, run.remaining
    recovered = figures.recovered
    soon = f", about {duration(left.seconds)} left" if left is not None else ""
    return (
        f"agents {figures.working}/{figures.workers}   recovered {rate(recovered.recovered, recovered.closed)}   "
        f"{money(figures.spent.dollars)}   {duration(figures.seconds)}{soon}"
    )
