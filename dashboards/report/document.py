"""From the data of a report to its document: the contents, their order and their texts, the same in every format."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from dashboards.report import blocks
from dashboards.report.blocks import Block, Cell, Code, Document, Paragraph, Section, Table
from dashboards.report.pictures import plan_graph
from dashboards.text.formats import count, counted, duration, money, rate, untested
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
from dashboards.text.safe import safe
from fleet.core.plans.limits import Reviewing
from fleet.read.agent_rows import NodeUseView
from fleet.read.question_view import ReviewsView
from fleet.read.report_data import LandedSubtask, Proof, ReportData, Saying, Talk
from fleet.read.run_view import RunStatus

SHORT = 10  # characters of a commit
MOST_BARS = 40
MOST_LANES = 60
MANY = 2  # roles; the share of one alone says nothing
MOST_STORIES = 200
MOST_NAMED = 12  # subtasks in a cell; --json has all of them
REVIEWED: dict[Reviewing | None, str] = {
    "human": "A person reviewed the first plan; the rules reviewed later changes.",
    "auto": "The rules approved what they allow; everything else waits for a person.",
    "none": "No review was requested.",
    None: "This run is older than the review rules: its first plan waited for a person, or there was no review.",
}
UNDERWAY: frozenset[RunStatus] = frozenset({"planning", "running", "draining", "waiting for the planner"})
STUCK = frozenset({"failed", "blocked", "escalated"})


def document(data: ReportData) -> Document:
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
    sections = [
        Section("outcome", "Goal and outcome", list(_outcome(data))),
        Section("human", "Needs attention", list(_attention(data))),
        Section("review", "Approvals", list(_approvals(data))),
        Section("timeline", "Timeline", list(_timeline(data))),
        Section("landed", "What landed", list(_landed(data))),
        Section("proof", "How it was proven", list(_proof(data))),
        Section("recovery", "Recovery", list(_recovery(data))),
        Section("reviews", "Reviews by other models", list(review_blocks(data.reviews))),
        Section("cost", "Cost", list(_cost(data))),
        Section("said", "What agents said", list(talk_blocks(data.talks, data.talks_left_out))),
        Section("undo", "How to undo it", list(_undo(data))),
    ]
    return Document(f"Run {data.run}", lead, [section for section in sections if section.blocks], _verdict(data))


def _verdict(data: ReportData) -> blocks.Verdict:
    """How the run went, in a word and a line."""
    landed = f"{data.progress} subtasks landed"
    recovered = (
        f"{data.recovered} of {data.closed} failures recovered without a human" if data.closed else "no failures"
    )
    figures = f"{landed}, {recovered}; {money(data.dollars)}, {duration(data.seconds)}"
    if data.needs:
        ends = f"; {ends_text(data.ends_in_s)} without it" if data.ends_in_s is not None else ""
        return blocks.Verdict("open", f"Needs you: {needs_text(data.needs)}", f"{figures}{ends}")
    tone = "good" if data.state == "landed" else "busy" if data.state in UNDERWAY else "bad"
    return blocks.Verdict(tone, data.state.capitalize(), figures)


def _outcome(data: ReportData) -> Iterator[Block]:
    yield Paragraph(data.goal, quoted=True)
    if data.synthesis:
        yield Paragraph(data.synthesis, quoted=True)
    if data.why and data.why != data.synthesis:
        yield Paragraph(f"It ended because: {data.why}")
    if data.state == "refused" and (lines := list(base_lines(data.base_check))):
        yield blocks.Log("Set-up and gate on the base", lines)
    unchanged = sum(part.commit is None for part in data.landed)
    landed = f"subtasks; {unchanged} of them changed no file" if unchanged else "subtasks, each as one commit"
    batches = f"{counted(data.batches, 'batch')}, {data.red_batches} red"
    resumed = f", resumed {counted(data.resumes, 'time')}" if data.resumes else ""
    yield blocks.Numbers(
        [
            ("landed", str(data.progress), landed),
            ("recovered without a human", rate(data.recovered, data.closed), "of closed incidents"),
            ("agents at once", count(data.peak), f"{count(data.workers)} allowed"),
            ("attempts", count(data.attempts), f"{counted(data.versions, 'version')} of the plan"),
            ("cost", money(data.dollars), f"{money(data.dollars_a_landed)} per commit" if data.commits else ""),
            ("time at work", duration(data.seconds), f"{batches}{resumed}"),
        ]
    )


# ---- people ---------------------------------------------------------------------------------------------------------


def _attention(data: ReportData) -> Iterator[Block]:
    commands = refusal_commands(data.base_check, data.run) if data.state == "refused" else []
    commands += [(f"{q.command} --run {data.run}", q.question) for q in data.questions]
    if waiting := data.reviewed.waiting:
        reasons = dict.fromkeys(reason for reasons in waiting.values() for reason in reasons)
        why = f" ({'; '.join(reasons)})" if reasons else ""
        commands.append((f"fleet approve {data.run}", f"{', '.join(waiting)}: waiting for approval{why}"))
    asked = {question.about for question in data.questions}
    stuck = [part for part in data.open if part.status in STUCK and part.id not in asked]
    commands += [(f"fleet retry {part.id} -g TEXT --run {data.run}", f"{part.title}: {part.why}") for part in stuck]
    if commands:
        yield blocks.Commands(commands)
    for question in data.questions:
        if lines := list(question_lines(question)):
            yield blocks.Log(f"What {question.id} is about, and what was tried", lines)
    rest = [part for part in data.open if part not in stuck]
    if rest:
        rows = [[Code(part.id), part.title, part.status, part.why] for part in rest]
        yield Table("Not landed", ("subtask", "title", "status", "why"), rows)
    for command in data.red_base:
        yield Paragraph(f"Failed on the base, and still fails: {command}")
    for warning in data.warnings:
        yield Paragraph(f"Note: {warning}")
    if not (commands or rest or data.red_base or data.warnings):
        yield Paragraph("Nothing. Everything landed; no open questions.")


def _approvals(data: ReportData) -> Iterator[Block]:
    reviewed = data.reviewed
    yield Paragraph(REVIEWED[reviewed.by])
    if reviewed.by in {"human", "auto"}:
        yield Paragraph(f"The rules: {'; '.join(reviewed.rules)}.")
    rows = [
        [
            _when(review.at),
            str(review.version),
            review.verdict,
            review.by,
            _names(review.subtasks),
            review.why,
        ]
        for review in reviewed.words
    ]
    if rows:
        yield Table("Approvals", ("when", "version", "verdict", "by", "subtasks", "why"), rows, frozenset({1}))
    told = [
        [_when(each.at), id_, each.by, ", ".join(map(str, each.read_by)) or "none", each.text]
        for id_, instructions in data.instructions.items()
        for each in instructions
    ]
    if told:
        yield Table("Instructions", ("when", "subtask", "by", "read by attempts", "text"), told, frozenset())


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _names(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return f"{', '.join(ids[:MOST_NAMED])}{more}"


# ---- pictures -------------------------------------------------------------------------------------------------------


def _timeline(data: ReportData) -> Iterator[Block]:
    line, seconds, marks = data.timeline, data.seconds, data.timeline.resumed
    peak = max((value for _, value in line.agents), default=0.0)
    peak_at = next((at for at, value in line.agents if value == peak), 0.0)
    were = "was" if peak == 1 else "were"
    summary = f"At the peak {counted(int(peak), 'agent')} {were} at work, first after {duration(peak_at)}."
    yield blocks.Chart("Agents at work", summary, {"agents": line.agents}, seconds, marks=marks)

    half_at = next((at for at, value in line.landed if data.landed and value * 2 >= len(data.landed)), None)
    half = f", half of them after {duration(half_at)}" if half_at is not None else ""
    summary = f"{counted(len(data.landed), 'subtask')} landed{half}."
    yield blocks.Chart("Landed work", summary, {"planned": line.planned, "landed": line.landed}, seconds, marks=marks)

    cost = dict(sorted(line.cost.items()))
    summary = ", ".join(f"{role} {money(points[-1][1])}" for role, points in cost.items())
    yield blocks.Chart("Cost", f"Total cost: {summary or 'nothing'}.", cost, seconds, dollars=True, marks=marks)

    if data.spans:
        yield _attempts(data)
    if data.nodes:
        head = ("node", "attempts", "lost", "losses", "host", "labels", "at the end")
        yield Table("Nodes", head, [_node_row(node) for node in data.nodes], frozenset({1, 2, 3}))
    if len(data.waves) > 1:
        yield plan_graph(data.waves)
    if data.incidents:
        spans = data.incidents[:MOST_BARS]
        yield blocks.Bars(
            "Incidents",
            f"{counted(len(data.incidents), 'incident')}: {data.recovered} recovered without a human, "
            f"{data.closed - data.recovered} did not, {len(data.incidents) - data.closed} open.",
            [blocks.Bar(f"{span.subtask}: {span.kind}", span.from_s, span.to_s, span.recovered) for span in spans],
            seconds,
            left_out=len(data.incidents) - len(spans),
        )


def _attempts(data: ReportData) -> Block:
    lanes = [
        blocks.Lane(each.id, [blocks.Bar(str(a.number), a.from_s, a.to_s, a.landed) for a in each.attempts])
        for each in data.spans[:MOST_LANES]
    ]
    again = sum(len(each.attempts) > 1 for each in data.spans)
    summary = (
        f"{counted(data.attempts, 'attempt')} at {counted(len(data.spans), 'subtask')}, {again} of them tried again."
    )
    left_out = max(0, len(data.spans) - MOST_LANES)
    return blocks.Lanes("Attempts", summary, lanes, data.seconds, left_out=left_out)


def _node_row(node: NodeUseView) -> list[Cell]:
    return [
        Code(node.name),
        str(node.attempts),
        str(node.failed),
        str(node.losses),
        node.host or "never connected",
        ", ".join(node.labels),
        f"{node.status}: {node.why}" if node.why else node.status,
    ]


# ---- tables ---------------------------------------------------------------------------------------------------------


def _landed(data: ReportData) -> Iterator[Block]:
    if not data.landed:
        yield Paragraph("Nothing has landed.")
        return
    if data.branch:
        yield Paragraph(f"All of it is on the branch {data.branch}, one commit for each subtask, in this order.")
    if more := untested(data.commits, data.commits_tested):
        yield Paragraph(
            f"{counted(data.commits, 'commit')}{more}. Each commit has its own tree tested if that is likely to fit "
            "into landing.every_commit_within_s, and always with landing.every_commit = true."
        )
    head = ("subtask", "title", "commit", "worker", "attempts", "files", "cost", "after")
    yield Table("Subtasks that landed", head, [_landed_row(part) for part in data.landed], frozenset({5, 6, 7}))


def _proof(data: ReportData) -> Iterator[Block]:
    tested = {"commits": data.commits, "tested": data.commits_tested}
    return proof_blocks(data.proof, batches=data.batches, red=data.red_batches, **tested)


def _landed_row(part: LandedSubtask) -> list[Cell]:
    return [
        Code(part.id),
        part.title,
        Code(part.commit[:SHORT]) if part.commit is not None else "no file changed",
        (f"{part.worker} ({part.model})" if part.model else part.worker) + (f" on {part.node}" if part.node else ""),
        f"{part.attempts}, {STRATEGIES[part.strategy]}" if part.attempts > 1 else str(part.attempts),
        str(part.files),
        money(part.dollars),
        duration(part.at_s) if part.at_s is not None else "",
    ]


def _recovery(data: ReportData) -> Iterator[Block]:
    yield Paragraph(
        "An incident opens at a failure. It closes as recovered when its subtask lands without a person's help, and as "
        "not recovered when the subtask is dropped or a person has to help."
    )
    strategies = [
        [
            STRATEGIES[row.strategy],
            rate(row.landed, row.attempts) if row.attempts else "none",
            rate(row.recovered, row.closed) if row.closed else "",
        ]
        for row in data.tried
    ]
    head = ("strategy", "attempts that landed", "recovered, of closed incidents that it was chosen for")
    yield Table("By strategy", head, strategies, frozenset({1, 2}))
    if not data.kinds:
        return
    classes = [[row.kind, str(row.opened), rate(row.recovered, row.recovered + row.unrecovered)] for row in data.kinds]
    yield Table("By first failure", ("class", "incidents", "recovered of closed"), classes, frozenset({1, 2}))
    incidents: list[list[Cell]] = []
    for span in data.incidents:
        end = headline(span.recovered, span.strategy, span.to_s - span.from_s if span.to_s is not None else None)
        incidents.append([Code(span.subtask), f"{span.kind}: {span.summary}", str(span.failures), end])
    yield Table("Incidents", ("subtask", "first failure", "failures", "how it ended"), incidents, frozenset({2}))
    for story in data.stories[:MOST_STORIES]:
        title, *lines = story_lines(story)
        yield blocks.Log(title, lines)
    more = len(data.stories) - MOST_STORIES
    if more > 0:
        yield Paragraph(f"{more} more incidents; `fleet show {data.run} --incident N` shows each of them.")


def _cost(data: ReportData) -> Iterator[Block]:
    if conclusion := _most(data):
        yield Paragraph(conclusion)
    rows = [
        [
            row.name.replace("_", " "),
            count(row.calls),
            count(row.tokens_in),
            f"{row.tokens_cached / row.tokens_in:.0%}" if row.tokens_in else "",
            count(row.tokens_out),
            money(row.dollars),
        ]
        for row in data.spending
    ]
    head = ("role", "calls", "tokens read", "of these from cache", "tokens written", "cost")
    yield Table("By role", head, rows, frozenset({1, 2, 3, 4, 5}))
    each = f", {money(data.dollars_a_landed)} per commit" if data.commits else ""
    simulated = " These are scripted prices: the model was simulated." if data.simulated else ""
    yield Paragraph(f"{money(data.dollars)} in total{each}.{simulated}")
    if data.estimates:
        yield Paragraph(f"Estimate for what is open: {'. '.join(estimate_rows(data.estimates))}.")


def _most(data: ReportData) -> str:
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


def _undo(data: ReportData) -> Iterator[Block]:
    if not data.landed or data.branch is None:
        yield Paragraph("Nothing was published on a branch of yours, so there is nothing to undo.")
        return
    yield blocks.Commands(
        [
            (f"git branch -D {data.branch}", "all of it, if you have not merged the branch"),
            (f"git revert --no-edit {data.base[:SHORT]}..{data.branch}", "all of it, on a branch that contains it"),
        ]
    )
    rows: list[list[Cell]] = [
        [Code(part.id), Code(f"git revert --no-edit {part.commit[:SHORT]}"), ", ".join(part.needed_by) or "nothing"]
        for part in reversed(data.landed)
        if part.files and part.commit is not None
    ]
    head = ("subtask", "command, on a branch that contains it", "subtasks that build on it")
    yield Table("Each part alone, the latest first", head, rows)


# ---- reviews ---------------------------------------------------------------------------------------------------------
# Reviews in a report: what models found in changes that they did not make, and what became of it.


HEAD = ("subtask", "attempt", "place", "finding", "what became of it")


def review_blocks(view: ReviewsView | None) -> Iterator[Block]:
    if view is None:
        return
    yield Paragraph(f"Reviews: {reviews_line(view)}. A false alarm is a finding whose line landed and stayed.")
    rows: list[list[Cell]] = [
        [
            Code(each.subtask),
            str(each.attempt),
            Code(f"{safe(each.file, limit=PROBLEM)}:{each.line}"),
            safe(each.problem, limit=PROBLEM),
            each.became or "not settled",
        ]
        for each in view.latest
    ]
    if rows:
        yield Table("Findings", HEAD, rows, frozenset({1}))
    if (more := view.findings - len(rows)) > 0:
        yield Paragraph(f"{counted(more, 'more finding')}; `fleet show SUBTASK` prints those of a subtask.")


# ---- proof -----------------------------------------------------------------------------------------------------------
# How what landed was proven: the gate, and each subtask's criteria, which ran again on the merged tree.


def proof_blocks(proof: Proof, *, batches: int, red: int, commits: int, tested: int) -> Iterator[Block]:
    if not commits and not proof.criteria:
        return
    gate = f"the project's gate ({proof.gate}) and " if proof.gate else ""
    none = "" if proof.gate else " There is no gate: nothing but these criteria was run."
    yield Paragraph(
        f"Before a commit landed, {gate}its criteria ran on a clean checkout of the merged tree, in "
        f"{counted(batches, 'batch')}, "
        f"{red} of them red and sent back. {counted(commits, 'commit')}{untested(commits, tested)}.{none}"
    )
    rows: list[list[Cell]] = [
        [
            Code(each.subtask),
            each.criterion,
            Code(each.command) if each.command is not None else "a check of the configuration",
            "failed" if each.failed_before else "passed: a guard",
        ]
        for each in proof.criteria
    ]
    if rows:
        yield Table(
            "Criteria, all of them green when their commit landed", ("subtask", "criterion", "command", "before"), rows
        )


# ---- said ------------------------------------------------------------------------------------------------------------
# What agents said while they worked. It is models' text.


TEXT = 300  # characters of one


def talk_blocks(talks: Sequence[Talk], left_out: int) -> Iterator[Block]:
    if not talks:
        return
    yield Paragraph(
        "The last summaries of what each agent was thinking, in its model's own words; no verdict rests on them."
    )
    for talk in talks:
        yield blocks.Log(_title(talk), [*_earlier(talk), *map(_line, talk.sayings)])
    if left_out:
        yield Paragraph(
            f"{counted(left_out, 'more agent')} said something; `fleet logs SUBTASK` prints a conversation."
        )


def _title(talk: Talk) -> str:
    name = safe(talk.subtask) if talk.subtask is not None else "the run"
    attempt = f"attempt {talk.number}"
    what = {"worker": attempt, "resolver": attempt, "reviewer": f"review of {attempt}"}.get(
        talk.role, f"planner, call {talk.number}"
    )
    return f"{name}: {what}, {safe(talk.model, limit=80)}"


def _earlier(talk: Talk) -> Iterator[str]:
    if talk.earlier:
        yield f"… {talk.earlier} before"


def _line(saying: Saying) -> str:
    return f"{duration(saying.at_s):>12}  {safe(saying.text, limit=TEXT)}"
