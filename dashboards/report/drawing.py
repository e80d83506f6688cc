"""The report of a run: the templates of this folder, drawn as one page that fetches and runs nothing, or as Markdown.

The contents, their order and their texts are the same in both: `blocks.html` and `blocks.md` have the same macros.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from dashboards.charts import Picture, Span, chart, columns, plan_graph, spans
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
from fleet.read.report_data import OpenSubtask, Point, ReportData, Talk, report_data
from fleet.read.run_view import RunStatus

TEMPLATES = Path(__file__).parent / "templates"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""A second defence of a page whose texts are escaped."""
SECTIONS: Mapping[str, str] = {
    "outcome": "Goal and outcome",
    "human": "Needs attention",
    "review": "Approvals",
    "timeline": "Timeline",
    "landed": "What landed",
    "proof": "How it was proven",
    "recovery": "Recovery",
    "reviews": "Reviews by other models",
    "cost": "Cost",
    "said": "What agents said",
    "undo": "How to undo it",
}
SHORT = 10  # characters of a commit
LIMITS = {
    "short": SHORT,
    "named": 12,  # subtasks in a cell; --json has all of them
    "stories": 200,
    "problem": PROBLEM,
    "open": 15,  # rows of a table that is not folded
    "shown": 300,  # rows of a long table in its first fold
    "folded": 1_000,  # and in each of the others
}
"""How much the templates show."""
MOST_BARS = 40
MOST_LANES = 60
MANY = 2  # roles; the share of one alone says nothing
LINES = 60  # of a goal
TEXT = 300  # characters of what an agent said
CHART_WIDTH = 48  # characters of a line in Markdown
REVIEWED: dict[Reviewing | None, str] = {
    "human": "A person reviewed the first plan; the rules reviewed later changes.",
    "auto": "The rules approved what they allow; everything else waits for a person.",
    "none": "No review was requested.",
    None: "This run is older than the review rules: its first plan waited for a person, or there was no review.",
}
UNDERWAY: frozenset[RunStatus] = frozenset({"planning", "running", "draining", "waiting for the planner"})
STUCK = frozenset({"failed", "blocked", "escalated"})


def page(data: ReportData, *, back: str = "") -> str:
    """The report as one file for a browser, with a link to its run if a server shows it."""
    style = (SHARED / "style.css").read_text(encoding="utf-8")
    parts = {"style": Markup(style), "policy": POLICY, "back": back}  # noqa: S704 - ours
    return _drawn(_templates(), "report.html", data, SECTIONS, title=f"Run {data.run}", lead=_lead(data), **parts)


def run_page(facts: Iterable[Fact], now: float, *, alive: bool, back: str) -> str | None:
    """The page for a server; None for a run that has not started."""
    data = report_data(facts, now, alive=alive)
    return page(data, back=back) if data is not None else None


def markdown(data: ReportData) -> str:
    lead = _lead(data)
    return _drawn(_markdown(), "report.md", data, SECTIONS, title=f"Run {data.run}", lead=lead, first=()).strip() + "\n"


def proposal(data: ReportData, *, lead: Sequence[str], first: Sequence[str], parts: Sequence[str]) -> str:
    """Sections of the report as the Markdown of a pull request, below what its reviewer should look at first."""
    chosen = {part: SECTIONS[part] for part in parts}
    return _drawn(_markdown(), "report.md", data, chosen, title=f"fleet: {data.run}", lead=lead, first=first).strip()


def _drawn(
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
    """With what the templates may call."""
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
    """How the run went, at one glance."""

    tone: str
    """`good`, `bad`, `busy` or `open`: a person is needed."""
    word: str
    text: str

    @property
    def sign(self) -> str:
        return {"good": "✔", "bad": "✘", "busy": "●"}.get(self.tone, "!")


def _verdict(data: ReportData) -> Verdict:
    recovered = (
        f"{data.recovered} of {data.closed} failures recovered without a human" if data.closed else "no failures"
    )
    figures = f"{data.progress} subtasks landed, {recovered}; {money(data.dollars)}, {duration(data.seconds)}"
    if data.needs:
        ends = f"; {ends_text(data.ends_in_s)} without it" if data.ends_in_s is not None else ""
        return Verdict("open", f"Needs you: {needs_text(data.needs)}", f"{figures}{ends}")
    tone = "good" if data.state == "landed" else "busy" if data.state in UNDERWAY else "bad"
    return Verdict(tone, data.state.capitalize(), figures)


def _lead(data: ReportData) -> list[str]:
    started = datetime.fromtimestamp(data.started_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    base = f"{data.base_name} ({data.base[:SHORT]}) of {data.repository}"
    lead = [f"{data.state.capitalize()}, started {started} on {base}"]
    if data.for_real:
        lead.append(
            "A REHEARSAL FOR REAL: workers did commits of history again, each on its parent; nothing was published."
        )
    elif data.rehearsal:
        lead.append(
            "A REHEARSAL: it replayed commits of history; no model was called, and none of its figures is real work."
        )
    if data.simulated:
        lead.append("The model was simulated: answers and prices are scripted, everything else is real.")
    if data.sandbox == "none":
        lead.append("WITHOUT A SANDBOX: commands that a model wrote had all rights of the user who started the run.")
    return lead


# ---- what the templates call -----------------------------------------------------------------------------------------


def rows(text: str) -> list[str]:
    return safe_block(text, lines=LINES).splitlines()


def when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def commands(data: ReportData) -> Iterator[tuple[str, str]]:
    """What to type, each with its purpose."""
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
    """What people told those who work on a subtask."""
    return [(id_, each) for id_, told in data.instructions.items() for each in told]


def chart_lines(lines: Mapping[str, Sequence[Point]], seconds: float) -> Iterator[str]:
    """A chart as rows of characters."""
    width = max(map(len, lines), default=0)
    for name, points in lines.items():
        yield f"{safe(name):<{width}}  {sparkline(columns(points, seconds, CHART_WIDTH))}"


def over_time(data: ReportData) -> Iterator[tuple[Picture, Mapping[str, Sequence[Point]] | None]]:
    """Pictures, each with the lines that Markdown shows of it."""
    line, seconds, marks = data.timeline, data.seconds, data.timeline.resumed
    peak = max((value for _, value in line.agents), default=0.0)
    peak_at = next((at for at, value in line.agents if value == peak), 0.0)
    were = "was" if peak == 1 else "were"
    summary = f"At the peak {counted(int(peak), 'agent')} {were} at work, first after {duration(peak_at)}."
    lines: dict[str, Sequence[Point]] = {"agents": line.agents}
    yield chart("Agents at work", summary, lines, seconds, marks=marks), lines

    half_at = next((at for at, value in line.landed if data.landed and value * 2 >= len(data.landed)), None)
    half = f", half of them after {duration(half_at)}" if half_at is not None else ""
    lines = {"planned": line.planned, "landed": line.landed}
    yield (
        chart("Landed work", f"{counted(len(data.landed), 'subtask')} landed{half}.", lines, seconds, marks=marks),
        lines,
    )

    lines = dict(sorted(line.cost.items()))
    each = ", ".join(f"{role} {money(points[-1][1])}" for role, points in lines.items())
    yield chart("Cost", f"Total cost: {each or 'nothing'}.", lines, seconds, dollars=True, marks=marks), lines

    if data.spans:
        yield _attempts(data), None


def _attempts(data: ReportData) -> Picture:
    tones = {True: "good", False: "bad", None: "busy"}
    rows = [
        (
            safe(each.id, limit=30),
            [Span(tones[a.landed], a.from_s, a.to_s, f"attempt {a.number}") for a in each.attempts],
        )
        for each in data.spans[:MOST_LANES]
    ]
    again = sum(len(each.attempts) > 1 for each in data.spans)
    summary = (
        f"{counted(data.attempts, 'attempt')} at {counted(len(data.spans), 'subtask')}, {again} of them tried again."
    )
    more = len(data.spans) - MOST_LANES
    key = (("good", "landed"), ("bad", "failed"), ("busy", "not ended"))
    note = f"{more} more subtasks are in the tables." if more > 0 else ""
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
            rows.append((label, [Span(tone, each.from_s, each.to_s)]))
        summary = (
            f"{counted(len(data.incidents), 'incident')}: {data.recovered} recovered without a human, "
            f"{data.closed - data.recovered} did not, {len(data.incidents) - data.closed} open."
        )
        more = len(data.incidents) - MOST_BARS
        note = f"{more} more are in the table of incidents." if more > 0 else ""
        yield spans("Incidents", summary, rows, data.seconds, note=note)


def most_expensive(data: ReportData) -> str:
    """Who spent the most, and how much of what was read came from the cache."""
    total = data.dollars or 0.0
    if not total or len(data.spending) < MANY:
        return ""
    most = max(data.spending, key=lambda row: row.dollars or 0.0)
    cached = (
        f", with {most.tokens_cached / most.tokens_in:.0%} of what they read from the cache" if most.tokens_in else ""
    )
    return (
        f"{most.name.replace('_', ' ').capitalize()} calls are {(most.dollars or 0.0) / total:.0%} of the cost{cached}."
    )


def talk_title(talk: Talk) -> str:
    name = safe(talk.subtask) if talk.subtask is not None else "the run"
    attempt = f"attempt {talk.number}"
    what = {"worker": attempt, "resolver": attempt, "reviewer": f"review of {attempt}"}.get(
        talk.role, f"planner, call {talk.number}"
    )
    return f"{name}: {what}, {safe(talk.model, limit=80)}"


def talk_lines(talk: Talk) -> Iterator[str]:
    if talk.earlier:
        yield f"… {talk.earlier} before"
    yield from (f"{duration(saying.at_s):>12}  {safe(saying.text, limit=TEXT)}" for saying in talk.sayings)
