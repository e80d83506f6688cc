"""From figures to a document: what is told, in which order, in which words. The same for every way to show it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from dashboards.figures import count, duration, money, rate, untested
from dashboards.report.blocks import (
    Bar,
    Bars,
    Block,
    Cell,
    Chart,
    Code,
    Commands,
    Document,
    Line,
    Log,
    Number,
    Numbers,
    Section,
    Table,
    Words,
)
from dashboards.report.figures import Figures, Span, Tried
from dashboards.stories import story_lines
from fleet.core.facts import Strategy
from fleet.core.policy import Reviewing

SHORT = 10  # characters of a commit
MOST_BARS = 40
MOST_STORIES = 200
MOST_NAMED = 12  # subtasks in a cell; --json has them all
REVIEWED: dict[Reviewing | None, str] = {
    "human": "A person looked at the first plan; what changed it later was looked at by the rules.",
    "auto": "The rules let pass what they allow; what they stop waits for a person.",
    "none": "Nothing waited for anybody: the run was begun without a review.",
    None: "The run is from before there were rules: its first plan waited for a person, or nothing did.",
}
HUMAN = frozenset({"failed", "blocked", "escalated"})
HOW: dict[Strategy | None, str] = {
    "first": "first try",
    "retry": "the same again",
    "resolve": "fitted to what landed",
    "alternative": "another approach",
    "split": "split into parts",
    "human": "a human helped",
    None: "",
}


def document(told: Figures) -> Document:
    when = datetime.fromtimestamp(told.started_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    lead = [f"{told.state.capitalize()}, begun {when} on {told.base_name} ({told.base[:SHORT]}) of {told.repository}"]
    if told.simulated:
        lead.append("The model was simulated: thinking and prices are scripted, everything else is real.")
    if told.sandbox == "none":
        lead.append("WITHOUT A SANDBOX: commands that a model wrote ran with the rights of whoever began the run.")
    sections = (
        Section("outcome", "Goal and outcome", list(_outcome(told))),
        Section("human", "What needs a human", list(_human(told))),
        Section("review", "Who let it begin", list(_review(told))),
        Section("timeline", "Timeline", list(_timeline(told))),
        Section("landed", "What landed", list(_landed(told))),
        Section("recovery", "Recovery", list(_recovery(told))),
        Section("cost", "Cost", list(_cost(told))),
        Section("undo", "How to undo it", list(_undo(told))),
    )
    return Document(f"Run {told.run}", lead, sections)


def _outcome(told: Figures) -> Iterator[Block]:
    yield Words(told.goal, quoted=True)
    if told.synthesis:
        yield Words(told.synthesis, quoted=True)
    if told.why and told.why != told.synthesis:
        yield Words(f"It ended because: {told.why}")
    total = len(told.landed) + sum(part.standing != "dropped" for part in told.open)
    resumed = f", resumed {told.resumes} times" if told.resumes > 1 else ", resumed once" if told.resumes else ""
    yield Numbers(
        [
            Number("landed", f"{len(told.landed)} of {total}", _as_commits(told)),
            Number("recovered without a human", rate(told.recovered, told.closed), "of incidents that closed"),
            Number("agents at once", count(told.peak), f"{count(told.workers)} allowed"),
            Number("attempts", count(told.attempts), f"{told.versions} versions of the plan"),
            Number("cost", money(told.dollars), f"{money(told.dollars_a_landed)} a commit" if told.commits else ""),
            Number("time at work", duration(told.seconds), f"{told.batches} batches, {told.red_batches} red{resumed}"),
        ]
    )


def _as_commits(told: Figures) -> str:
    bare = sum(part.commit is None for part in told.landed)
    return f"subtasks; {bare} of them changed no file" if bare else "subtasks, each as one commit"


# ---- people ---------------------------------------------------------------------------------------------------------


def _human(told: Figures) -> Iterator[Block]:
    commands = [(f"fleet answer {q.id} TEXT --run {told.run}", q.question) for q in told.questions]
    if waits := told.reviewed.waiting:
        commands.append((f"fleet approve {told.run}", f"{', '.join(waits)}: {_whose(told)}"))
    asked = {question.about for question in told.questions}
    stuck = [part for part in told.open if part.standing in HUMAN and part.id not in asked]
    commands += [(f"fleet retry {part.id} -g TEXT --run {told.run}", f"{part.title}: {part.why}") for part in stuck]
    if commands:
        yield Commands(commands)
    rest = [part for part in told.open if part not in stuck]
    if rest:
        rows: list[list[Cell]] = [[Code(part.id), part.title, part.standing, part.why] for part in rest]
        yield Table("What has not landed, too", ("subtask", "title", "stands at", "why"), rows)
    for command in told.red_base:
        yield Words(f"Was red on the base and still is: {command}")
    for warning in told.warnings:
        yield Words(f"Note: {warning}")
    if not (commands or rest or told.red_base or told.warnings):
        yield Words("Nothing: all is landed, and nobody is asked anything.")


def _whose(told: Figures) -> str:
    reasons = dict.fromkeys(reason for reasons in told.reviewed.waiting.values() for reason in reasons)
    said = f" ({'; '.join(reasons)})" if reasons else ""
    return f"waits for a person's word{said}"


def _review(told: Figures) -> Iterator[Block]:
    reviewed = told.reviewed
    yield Words(REVIEWED[reviewed.by])
    if reviewed.by in {"human", "auto"}:
        yield Words(f"The rules: {'; '.join(reviewed.rules)}.")
    rows: list[list[Cell]] = [
        [
            datetime.fromtimestamp(word.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
            str(word.version),
            "rejected" if word.rejected else "approved",
            word.by,
            _named(word.subtasks),
            word.why,
        ]
        for word in reviewed.words
    ]
    if rows:
        head = ("when", "version", "what was said", "by", "of", "why")
        yield Table("What was said of the plan", head, rows, frozenset({1}))


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return f"{', '.join(ids[:MOST_NAMED])}{more}"


# ---- pictures -------------------------------------------------------------------------------------------------------


def _timeline(told: Figures) -> Iterator[Block]:
    line = told.timeline
    top = max((value for _, value in line.agents), default=0.0)
    at = next((at for at, value in line.agents if value == top), 0.0)
    yield Chart(
        "Agents at work",
        f"At the peak {top:.0f} agent{'s were' if top != 1 else ' was'} at work at once, first after {duration(at)}.",
        [Line("agents", line.agents)],
        told.seconds,
        marks=line.resumed,
    )
    half = next((at for at, value in line.landed if told.landed and value * 2 >= len(told.landed)), None)
    yield Chart(
        "Landed work",
        f"{len(told.landed)} subtasks landed{f', half of them after {duration(half)}' if half is not None else ''}.",
        [Line("planned", line.planned), Line("landed", line.landed)],
        told.seconds,
        marks=line.resumed,
    )
    spent = [f"{role} {money(points[-1][1])}" for role, points in sorted(line.cost.items())]
    yield Chart(
        "Cost",
        f"Spent in all: {', '.join(spent) or 'nothing'}.",
        [Line(role, points) for role, points in sorted(line.cost.items())],
        told.seconds,
        dollars=True,
        marks=line.resumed,
    )
    if told.incidents:
        shown = told.incidents[:MOST_BARS]
        yield Bars(
            "Incidents",
            f"{len(told.incidents)} incidents: {told.recovered} recovered without a human, "
            f"{told.closed - told.recovered} did not, {len(told.incidents) - told.closed} are open.",
            [Bar(f"{span.subtask}: {span.kind}", span.from_s, span.to_s, span.recovered) for span in shown],
            told.seconds,
            left_out=len(told.incidents) - len(shown),
        )


# ---- tables ---------------------------------------------------------------------------------------------------------


def _landed(told: Figures) -> Iterator[Block]:
    if not told.landed:
        yield Words("Nothing has landed.")
        return
    if told.branch:
        yield Words(f"All of it is on the branch {told.branch}, one commit a subtask, in this order.")
    if more := untested(told.commits, told.commits_tested):
        yield Words(
            f"{told.commits} commits{more}. Each has its own tree tested as long as that is likely to take no longer "
            "than landing.every_commit_within_s, and always with landing.every_commit = true."
        )
    rows: list[list[Cell]] = [
        [
            Code(part.id),
            part.title,
            Code(part.commit[:SHORT]) if part.commit is not None else "no file changed",
            f"{part.worker} ({part.model})" if part.model else part.worker,
            f"{part.attempts}" + (f", {HOW[part.strategy]}" if part.attempts > 1 else ""),
            str(part.files),
            money(part.dollars),
            duration(part.at_s) if part.at_s is not None else "",
        ]
        for part in told.landed
    ]
    head = ("subtask", "title", "commit", "worker", "attempts", "files", "cost", "after")
    yield Table("Subtasks that landed", head, rows, frozenset({5, 6, 7}))


def _recovery(told: Figures) -> Iterator[Block]:
    yield Words(
        "An incident opens at a failure. It closes as recovered when its goal lands, else when the goal is dropped or "
        "handed to a human."
    )
    tried: list[list[Cell]] = [
        [HOW[one.strategy], rate(one.landed, one.attempts) if one.attempts else "none", _recovered(one)]
        for one in told.tried
    ]
    head = ("strategy", "attempts that landed", "recovered, of the closed incidents it was chosen for")
    yield Table("By strategy", head, tried, frozenset({1, 2}))
    if not told.kinds:
        return
    kinds: list[list[Cell]] = [
        [kind.kind, str(kind.opened), rate(kind.recovered, kind.recovered + kind.unrecovered)] for kind in told.kinds
    ]
    yield Table("By what failed first", ("class", "incidents", "recovered of closed"), kinds, frozenset({1, 2}))
    stories: list[list[Cell]] = [
        [Code(span.subtask), f"{span.kind}: {span.summary}", str(span.failures), _end(span)] for span in told.incidents
    ]
    yield Table("Incidents", ("subtask", "what failed first", "failures", "how it ended"), stories, frozenset({2}))
    for story in told.stories[:MOST_STORIES]:
        title, *lines = story_lines(story)
        yield Log(title, lines)
    if len(told.stories) > MOST_STORIES:
        more = len(told.stories) - MOST_STORIES
        yield Words(f"{more} more incidents are told by `fleet show {told.run} --incident N`.")


def _recovered(one: Tried) -> str:
    return rate(one.recovered, one.closed) if one.closed else ""


def _end(span: Span) -> str:
    if span.to_s is None:
        return "open"
    took = duration(span.to_s - span.from_s)
    if span.recovered:
        return f"recovered after {took}: {HOW[span.strategy]}"
    return f"a human was asked after {took}" if span.strategy == "human" else f"given up after {took}"


def _cost(told: Figures) -> Iterator[Block]:
    rows: list[list[Cell]] = [
        [
            one.name.replace("_", " "),
            count(one.calls),
            count(one.tokens_in),
            _share(one.tokens_cached, one.tokens_in),
            count(one.tokens_out),
            money(one.dollars),
        ]
        for one in told.spending
    ]
    head = ("role", "calls", "tokens read", "of these from cache", "tokens written", "cost")
    yield Table("By role", head, rows, frozenset({1, 2, 3, 4, 5}))
    each = f"{money(told.dollars_a_landed)} for each of {told.commits} commits"
    said = f"{money(told.dollars)} in all, {each}." if told.commits else f"{money(told.dollars)} in all."
    yield Words(f"{said} Priced as if real: the model was simulated." if told.simulated else said)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _undo(told: Figures) -> Iterator[Block]:
    if not told.landed or told.branch is None:
        yield Words("Nothing was put on a branch of yours, so there is nothing to undo.")
        return
    yield Commands(
        [
            (f"git branch -D {told.branch}", "all of it, as long as you have merged it nowhere"),
            (f"git revert --no-edit {told.base[:SHORT]}..{told.branch}", "all of it, on a branch that holds it"),
        ]
    )
    rows: list[list[Cell]] = [
        [Code(part.id), Code(f"git revert --no-edit {part.commit[:SHORT]}"), ", ".join(part.needed_by) or "nothing"]
        for part in reversed(told.landed)
        if part.files and part.commit is not None
    ]
    head = ("subtask", "takes it back, on a branch that holds it", "what builds on it")
    yield Table("Each part alone, the latest first", head, rows)
