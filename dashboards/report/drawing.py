"""Render the report of a run as a self-contained HTML page without scripts, or as Markdown.

Both have the same contents in the same order: `blocks.html` and `blocks.md` define the same macros.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from dashboards.charts import ChartSpan, Picture, chart, columns, plan_graph, spans
from dashboards.rendering import SHARED, environment, markdown_environment
from dashboards.text.formats import counted, duration, listed, money, sparkline, untested
from dashboards.text.incident_text import (
    PROBLEM,
    STRATEGIES,
    base_lines,
    ends_text,
    headline,
    needs_text,
    question_lines,
    refusal_commands,
    reviews_line,
    story_lines,
)
from dashboards.text.plan_review import estimate_rows
from dashboards.text.safe import safe, safe_block
from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import Fact
from fleet.core.plans.limits import Reviewing
from fleet.read.question_view import InstructionView
from fleet.read.report_data import AgentSummaries, OpenSubtask, Point, ReportData, report_data
from fleet.read.run_view import RunStatus

TEMPLATES = Path(__file__).parent / "templates"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Defense in depth: all texts on the page are escaped as well."""
SECTIONS: Mapping[str, str] = {
    "outcome": "Goal and outcome",
    "human": "Needs attention",
    "review": "Approvals",
    "timeline": "Timeline",
    "landed": "What landed",
    "proof": "Verification",
    "recovery": "Recovery",
    "reviews": "Reviews by other models",
    "cost": "Cost",
    "said": "Agent summaries",
    "undo": "How to undo",
}
SHORT = 10  # characters of a commit
LIMITS = {
    "short": SHORT,
    "named": 12,  # subtasks in a cell; `--json` lists all
    "stories": 200,
    "problem": PROBLEM,
    "open": 15,  # maximum rows of an unfolded table
    "shown": 300,  # rows in the first fold of a long table
    "folded": 1_000,  # rows in each further fold
}
"""The limits of the templates."""
MOST_BARS = 40
MOST_LANES = 60
MANY = 2  # roles: the share of a single role is not interesting
LINES = 60  # of a goal
TEXT = 300  # characters of an agent summary
CHART_WIDTH = 48  # characters of a line in Markdown
REVIEWED: dict[Reviewing | None, str] = {
    "human": "A person reviewed the first plan. The review rules decided about later changes.",
    "auto": "The review rules approved allowed subtasks. All others wait for a person.",
    "none": "No review was requested.",
    None: "The journal does not record a review: the run was started by a version of fleet without review rules.",
}
UNDERWAY: frozenset[RunStatus] = frozenset({"planning", "running", "draining", "waiting for the planner"})
STUCK = frozenset({"failed", "blocked", "escalated"})


def page(data: ReportData, *, back: str = "") -> str:
    """Render the report as a single HTML file. `back` is the address of the run on a server."""
    style = (SHARED / "style.css").read_text(encoding="utf-8")
    parts = {"style": Markup(style), "policy": POLICY, "back": back}  # noqa: S704 - ours
    return _draw(_templates(), "report.html", data, SECTIONS, title=f"Run {data.run}", lead=_lead(data), **parts)


def run_page(facts: Iterable[Fact], now: float, *, alive: bool, back: str) -> str | None:
    """Render the page for a server. Return None for a run that has not started."""
    data = report_data(facts, now, alive=alive)
    return page(data, back=back) if data is not None else None


def markdown(data: ReportData) -> str:
    lead = _lead(data)
    return _draw(_markdown(), "report.md", data, SECTIONS, title=f"Run {data.run}", lead=lead, first=()).strip() + "\n"


def proposal(data: ReportData, *, lead: Sequence[str], first: Sequence[str], parts: Sequence[str]) -> str:
    """Render sections of the report as the description of a pull request, below the notes for its reviewer."""
    chosen = {part: SECTIONS[part] for part in parts}
    return _draw(_markdown(), "report.md", data, chosen, title=f"fleet: {data.run}", lead=lead, first=first).strip()


def _draw(
    made: Environment, name: str, data: ReportData, sections: Mapping[str, str], *, title: str, **values: object
) -> str:
    bodies = {anchor: made.get_template(f"parts/{anchor}.html").render(data=data) for anchor in sections}
    shown = [(anchor, sections[anchor], Markup(body.strip())) for anchor, body in bodies.items() if body.strip()]  # noqa: S704
    return made.get_template(name).render(title=title, verdict=_verdict(data), sections=shown, **values)


@cache
def _templates() -> Environment:
    return _with_texts(environment(TEMPLATES), "blocks.html")


@cache
def _markdown() -> Environment:
    return _with_texts(markdown_environment(TEMPLATES), "blocks.md")


def _with_texts(made: Environment, blocks: str) -> Environment:
    """Add the functions and values that the templates use."""
    functions = (
        *(base_lines, chart_lines, commands, counted, estimate_rows, headline, instructions, listed, most_expensive),
        *(over_time, plan_and_incidents, question_lines, reviews_line, rows, safe, story_lines, stuck, talk_lines),
        *(talk_title, untested, when),
    )
    made.globals |= {each.__name__: each for each in functions}
    made.globals |= {"blocks": blocks, "limits": LIMITS, "strategies": STRATEGIES, "reviewed": REVIEWED}
    made.filters["oneline"] = lambda text: text.replace("\n", "")
    return made


# ---- head ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a run at a glance."""

    tone: str
    """`good`, `bad`, `busy`, or `open` if the run needs a person."""
    word: str
    text: str

    @property
    def sign(self) -> str:
        return {"good": "✔", "bad": "✘", "busy": "●"}.get(self.tone, "!")


def _verdict(data: ReportData) -> Verdict:
    recovered = (
        f"{data.recovered} of {data.closed} failures recovered without a human" if data.closed else "no failures"
    )
    figures = f"{data.progress} subtasks landed, {recovered}, {money(data.dollars)}, {duration(data.seconds)}"
    if data.needs:
        ends = f"; otherwise {ends_text(data.ends_in_s)}" if data.ends_in_s is not None else ""
        return Verdict("open", f"Needs you: {needs_text(data.needs)}", f"{figures}{ends}")
    tone = "good" if data.state == "landed" else "busy" if data.state in UNDERWAY else "bad"
    return Verdict(tone, data.state.capitalize(), figures)


def _lead(data: ReportData) -> list[str]:
    started = datetime.fromtimestamp(data.started_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    base = f"{data.base_name} ({data.base[:SHORT]}) of {data.repository}"
    lead = [f"{data.state.capitalize()}, started {started} on {base}"]
    if data.for_real:
        lead.append("REHEARSAL FOR REAL: workers redid past commits, each on its parent. No branch was published.")
    elif data.rehearsal:
        lead.append("REHEARSAL: the run replayed past commits without model calls. Its figures are not real work.")
    if data.simulated:
        lead.append("The model was simulated. Its answers and prices are scripted. Everything else is real.")
    if data.sandbox == "none":
        lead.append("NO SANDBOX: commands written by a model ran with all permissions of the user who started the run.")
    return lead


# ---- what the templates call -----------------------------------------------------------------------------------------


def rows(text: str) -> list[str]:
    return safe_block(text, lines=LINES).splitlines()


def when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def commands(data: ReportData) -> Iterator[tuple[str, str]]:
    """The next commands to run, each with its purpose."""
    if data.state == "refused":
        yield from refusal_commands(data.base_check, data.run)
    yield from ((f"{question.command} --run {data.run}", question.question) for question in data.questions)
    if waiting := data.reviewed.waiting:
        reasons = dict.fromkeys(reason for reasons in waiting.values() for reason in reasons)
        why = f" ({'; '.join(reasons)})" if reasons else ""
        yield f"fleet approve {data.run}", f"{', '.join(waiting)}: waiting for approval{why}"
    for part in stuck(data):
        yield f"fleet retry {part.id} -g TEXT --run {data.run}", f"{part.title}: {part.why}"


def stuck(data: ReportData) -> list[OpenSubtask]:
    asked = {question.about for question in data.questions}
    return [part for part in data.open if part.status in STUCK and part.id not in asked]


def instructions(data: ReportData) -> list[tuple[SubtaskId, InstructionView]]:
    """The instructions from people, with their subtasks."""
    return [(id_, each) for id_, told in data.instructions.items() for each in told]


def chart_lines(lines: Mapping[str, Sequence[Point]], seconds: float) -> Iterator[str]:
    """A chart in text form."""
    width = max(map(len, lines), default=0)
    for name, points in lines.items():
        yield f"{safe(name):<{width}}  {sparkline(columns(points, seconds, CHART_WIDTH))}"


def over_time(data: ReportData) -> Iterator[tuple[Picture, Mapping[str, Sequence[Point]] | None]]:
    """Charts, each with its lines for Markdown."""
    line, seconds, marks = data.timeline, data.seconds, data.timeline.resumed
    peak = max((value for _, value in line.agents), default=0.0)
    peak_at = next((at for at, value in line.agents if value == peak), 0.0)
    were = "was" if peak == 1 else "were"
    summary = f"At most {counted(int(peak), 'agent')} {were} running at the same time, first after {duration(peak_at)}."
    lines: dict[str, Sequence[Point]] = {"agents": line.agents}
    yield chart("Running agents", summary, lines, seconds, marks=marks), lines

    half_at = next((at for at, value in line.landed if data.landed and value * 2 >= len(data.landed)), None)
    half = f", half of them after {duration(half_at)}" if half_at is not None else ""
    lines = {"planned": line.planned, "landed": line.landed}
    yield (
        chart("Landed work", f"{counted(len(data.landed), 'subtask')} landed{half}.", lines, seconds, marks=marks),
        lines,
    )

    lines = dict(sorted(line.cost.items()))
    each = ", ".join(f"{role} {money(points[-1][1])}" for role, points in lines.items())
    yield chart("Cost", f"Total cost: {each or 'none'}.", lines, seconds, dollars=True, marks=marks), lines

    if data.spans:
        yield _attempts(data), None


def _attempts(data: ReportData) -> Picture:
    tones = {True: "good", False: "bad", None: "busy"}
    rows = [
        (
            safe(each.id, limit=30),
            [ChartSpan(tones[a.landed], a.from_s, a.to_s, f"attempt {a.number}") for a in each.attempts],
        )
        for each in data.spans[:MOST_LANES]
    ]
    again = sum(len(each.attempts) > 1 for each in data.spans)
    summary = (
        f"{counted(data.attempts, 'attempt')} at {counted(len(data.spans), 'subtask')}, {again} of them more than once."
    )
    more = len(data.spans) - MOST_LANES
    key = (("good", "landed"), ("bad", "failed"), ("busy", "running"))
    note = f"The tables list {more} more subtasks." if more > 0 else ""
    return spans("Attempts", summary, rows, data.seconds, key=key, note=note)


def plan_and_incidents(data: ReportData) -> Iterator[Picture]:
    if len(data.waves) > 1:
        yield plan_graph(data.waves)
    if data.incidents:
        tones = {True: ("good", "✔"), False: ("bad", "✘"), None: ("open", "…")}
        rows = []
        for each in data.incidents[:MOST_BARS]:
            tone, sign = tones[each.recovered]
            label = f"{safe(f'{each.subtask}: {each.kind}', limit=30)} {sign}"
            rows.append((label, [ChartSpan(tone, each.from_s, each.to_s)]))
        summary = (
            f"{counted(len(data.incidents), 'incident')}: {data.recovered} recovered without a human, "
            f"{data.closed - data.recovered} not recovered, {len(data.incidents) - data.closed} open."
        )
        more = len(data.incidents) - MOST_BARS
        note = f"The table lists {more} more incidents." if more > 0 else ""
        yield spans("Incidents", summary, rows, data.seconds, note=note)


def most_expensive(data: ReportData) -> str:
    """The role with the highest cost, and its share of cached tokens."""
    total = data.dollars or 0.0
    if not total or len(data.spending) < MANY:
        return ""
    most = max(data.spending, key=lambda row: row.dollars or 0.0)
    cached = (
        f", with {most.tokens_cached / most.tokens_in:.0%} of their input tokens read from cache"
        if most.tokens_in
        else ""
    )
    return (
        f"{most.name.replace('_', ' ').capitalize()} calls are {(most.dollars or 0.0) / total:.0%} of the cost{cached}."
    )


def talk_title(talk: AgentSummaries) -> str:
    name = safe(talk.subtask) if talk.subtask is not None else "the run"
    attempt = f"attempt {talk.number}"
    what = {"worker": attempt, "resolver": attempt, "reviewer": f"review of {attempt}"}.get(
        talk.role, f"planner, call {talk.number}"
    )
    return f"{name}: {what}, {safe(talk.model, limit=80)}"


def talk_lines(talk: AgentSummaries) -> Iterator[str]:
    if talk.earlier:
        yield f"… {talk.earlier} earlier"
    yield from (f"{duration(saying.at_s):>12}  {safe(saying.text, limit=TEXT)}" for saying in talk.sayings)
