"""The end of a run on one screen: the subtasks, the incidents, the totals, and the commands that come next."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dashboards.text.event_text import waiting_line
from dashboards.text.formats import activity_of, counted, duration, kind_mark, money, rate, tokens, untested
from dashboards.text.incident_text import base_lines, outcome, refusal_commands
from dashboards.text.review_text import reviews_line
from dashboards.text.safe import safe, safe_goal
from fleet.core.facts.facts import Role
from fleet.core.policy.budget import outage_text
from fleet.core.policy.requests import open_for_approval
from fleet.core.state.state import Incident, RunState
from fleet.core.state.status import phase, progress
from fleet.read.base_view import base_view
from fleet.read.estimate_view import remaining_view
from fleet.read.incident_view import rate_of
from fleet.read.question_view import reply_command, reviews_view
from fleet.read.run_view import commits_tested, run_word, spend_by_role
from fleet.read.subtask_view import subtask_rows

TITLE = 58
ROLES: dict[Role, str] = {
    "planner": "planner",
    "sub_planner": "sub-planners",
    "worker": "workers",
    "resolver": "resolvers",
    "reviewer": "reviewers",
}
STATUS_SIGNS = {"merged": "✔", "split": "┬", "dropped": "-", "failed": "✘", "blocked": "✘", "escalated": "?"}


def summary_lines(state: RunState, now: float, *, alive: bool = False) -> list[str]:
    label = kind_mark(state)
    lines = [
        f"{run_word(state, now, alive=alive).upper()}  {safe(state.run)}{label}",
        safe_goal(state.plan.goal or state.goal, limit=110),
    ]
    if state.ending_why:
        lines.append(safe(state.ending_why, limit=400))
    lines += ["", "Subtasks", *_subtask_lines(state, now)]
    if state.incidents:
        lines += ["", "Failures and recovery", *map(_incident_line, state.incidents)]
    commands = next_commands(state)
    width = max(len(command) for command, _ in commands)
    steps = [f"  {command:<{width}}  {purpose}" for command, purpose in commands]
    return [*lines, "", "Totals", *total_lines(state, now), "", "Next steps", *steps]


def refusal_lines(state: RunState, logs: str) -> list[str]:
    """A run that ended before anything was done: what failed, what to do about it, and what to look at."""
    run, view = safe(state.run), base_view(state)
    commands = refusal_commands(view, run)
    width = max(len(command) for command, _ in commands)
    steps = [f"  {command:<{width}}  {purpose}" for command, purpose in commands]
    base = (f"  {line}" for line in base_lines(view, logs=logs))
    return [f"REFUSED  {run}", *base, "", "Next steps", *steps]


def _subtask_lines(state: RunState, now: float) -> Iterator[str]:
    rows = subtask_rows(state, now)
    width = min(TITLE, max((len(safe(spec.title, limit=TITLE)) for spec, _, _ in rows), default=0))
    for spec, subtask, status in rows:
        note = f"  {len(subtask.attempts)} attempts" if len(subtask.attempts) > 1 else ""
        if subtask.parts:
            note = f"  into {', '.join(map(safe, subtask.parts))}"
        note += "  no file changed" if subtask.unchanged else ""
        sha = f"  {safe(subtask.landed[:7])}" if subtask.landed and not subtask.unchanged else ""
        title = f"{safe(spec.id):<18} {safe(spec.title, limit=TITLE):<{width}}"
        yield f"  {STATUS_SIGNS.get(status, '·')} {title} {status}{sha}{note}"


def _incident_line(incident: Incident) -> str:
    first = incident.troubles[0]
    more = f" (+{len(incident.troubles) - 1} more)" if len(incident.troubles) > 1 else ""
    sign = "·" if incident.recovered is None else "✔" if incident.recovered else "✘"
    how = outcome(incident.recovered, incident.strategy)
    return f"  {sign} {safe(incident.subtask):<18} {incident.kind}: {safe(first.summary, limit=60)}{more}  →  {how}"


def total_lines(state: RunState, now: float) -> Iterator[str]:
    """The figures of a run, one a line."""
    incidents, landed = rate_of(state.incidents), state.commits
    batches = f"{counted(state.landing.batches, 'batch')} ({state.landing.red} red)"
    yield f"  recovered without a human  {rate(incidents.recovered, incidents.closed)}"
    yield f"  commits landed             {landed} in {batches}{untested(landed, commits_tested(state))}"
    if (reviews := reviews_view(state)) is not None:
        yield f"  reviews                    {reviews_line(reviews)}"
    yield f"  agents at once             {state.peak} at the peak, {state.policy.workers} allowed"
    yield f"  attempts                   {state.attempts}"
    for role, spend in spend_by_role(state).items():
        yield f"  {ROLES[role]:<26} {tokens(spend)}, {money(spend.dollars)}"
    yield f"  cost                       {_cost(state)}"
    yield f"  time                       {duration(state.seconds(now))}"
    if state.red_base and landed:
        gate = ", ".join(safe(check.command, limit=70) for check in state.red_base)
        yield f"  gate                       NEVER GREEN: {gate}; red on the base and on everything that landed"
    yield from (f"  WAITING                    {safe(outage_text(*out), limit=200)}" for out in state.service.items())
    if state.gate_command == "":
        yield "  gate                       NONE: only the subtasks' own checks were run"
    if state.sandbox == "none":
        yield "  sandbox                    NONE: commands ran with your permissions"


def _cost(state: RunState) -> str:
    cost, doubt = money(state.spent.dollars), state.doubt
    if state.commits and state.spent.dollars:
        cost += f", {money(state.spent.dollars / state.commits)} per landed subtask"
    if state.simulated:
        cost += " (simulated: priced as if real)"
    if doubt.calls:
        cost += f", and up to {money(doubt.dollars)} more for {counted(doubt.calls, 'interrupted call')}"
    return cost


def next_commands(state: RunState) -> list[tuple[str, str]]:
    """Commands to type next, each with its purpose."""
    run, branch = safe(state.run), safe(state.result_branch)
    commands = [(f"fleet show SUBTASK --run {run}", "attempts, checks and failures of one subtask")]
    if state.published:
        commands = [
            (f"git log --oneline {safe(state.base[:7])}..{branch}", "the result branch in your repository"),
            (f"fleet merge {run}", "take it into the branch you are on"),
            *commands,
        ]
    if state.relanding is not None:
        result, into = safe(state.relanding.run), safe(state.relanding.branch)
        commands = [(f"fleet merge {result} --into {into}", "take what has landed, or go on landing it"), *commands]
    if state.ending != "landed":
        if pending := open_for_approval(state):
            commands.append((f"fleet approve {run}", f"approve {safe(', '.join(pending), limit=60)}"))
        commands += [(f"{safe(reply_command(q))} --run {run}", safe(q.text, limit=70)) for q in state.open_questions()]
        commands.append((f"fleet resume {run}", "continue the run"))
    return commands


# ---- live ------------------------------------------------------------------------------------------------------------
# A running run on a terminal: events scroll by, and a few lines below them show its current state.


AGENTS = 8  # rows of agents; the others are counted
QUESTIONS = 3
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class LiveScreen:
    """The lines at the bottom of the terminal. Text from outside is shown as text, never as markup."""

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
        """Hides the lines that change while a person is asked something."""
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def event(self, line: str) -> None:
        self._live.console.print(Text(line), soft_wrap=True)

    def show(self, state: RunState, now: float) -> None:
        self._ticks += 1
        self._live.update(self._screen(state, now), refresh=True)

    def _screen(self, state: RunState, now: float) -> RenderableType:
        landed = progress(state)
        spinner = SPINNER[self._ticks % len(SPINNER)]
        mark = kind_mark(state)
        unsafe = "  NO SANDBOX" if state.sandbox == "none" else ""
        head = Text(f"{spinner} {safe(state.run)}  {run_word(state, now, alive=True)}{mark}{unsafe}", style="bold")
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(total=max(1, landed.total), completed=landed.done, width=40), Text(f"{landed} landed"))
        rows: list[RenderableType] = [head, bar, Text(_totals(state, now)), *self._agents(state, now)]
        for scope, outage in state.service.items():
            waits = waiting_line(outage_text(scope, outage), now - outage.since)
            rows.append(Text(f"! {waits}", style="bold yellow"))
        for q in state.open_questions()[:QUESTIONS]:
            text = f"? {q.id}: {safe(q.text, limit=240)}  →  {safe(reply_command(q))}"
            rows.append(Text(text, style="bold yellow"))
        return Group(*rows)

    def _agents(self, state: RunState, now: float) -> Iterable[Text]:
        planning = state.planning
        if planning.open is not None:
            text = f"  {'planner':<18} {safe(planning.why)}  {safe(activity_of(planning), limit=100)}"
            yield _one_line(text, style="cyan")
        busy = list(state.underway())
        for subtask, attempt in busy[:AGENTS]:
            activity = f"turn {attempt.turn}  {safe(activity_of(attempt), limit=100)}" if attempt.turn else ""
            age = duration(now - attempt.started_at)
            yield _one_line(f"  {safe(subtask.id, limit=18):<18} {phase(attempt):<9}{age:>6}  {activity}")
        if len(busy) > AGENTS:
            yield Text(f"  … and {len(busy) - AGENTS} more")


def _one_line(text: str, *, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _totals(state: RunState, now: float) -> str:
    recovered, left = rate_of(state.incidents), remaining_view(state, now, alive=True)
    soon = f", about {duration(left.seconds)} left" if left is not None else ""
    return (
        f"agents {state.working()}/{state.policy.workers}   recovered {rate(recovered.recovered, recovered.closed)}   "
        f"{money(state.spent.dollars)}   {duration(state.seconds(now))}{soon}"
    )
