"""The end of a run on one screen: what landed, what failed and how it recovered, what it cost, where to look next."""

from dashboards.figures import duration, money, rate, tokens, untested
from dashboards.safe import safe
from fleet.core.approval import awaited
from fleet.core.facts import Role
from fleet.core.incidents import Incident, rate_of
from fleet.core.outages import in_words
from fleet.core.state import RunState
from fleet.core.usage import Cost
from fleet.core.views import commits_tested, run_word, spend_by_role, subtask_rows

TITLE = 58
NAMES: dict[Role, str] = {
    "planner": "planner",
    "sub_planner": "sub-planners",
    "worker": "workers",
    "resolver": "resolvers",
}
MARKS = {"merged": "✔", "split": "⑂", "dropped": "-", "failed": "✘", "blocked": "✘", "escalated": "?"}
HOW = {
    "first": "first try",
    "retry": "retried",
    "resolve": "fitted to what landed",
    "alternative": "another approach",
    "split": "split",
    "human": "a human helped",
    None: "not recovered",
}


def summary_lines(state: RunState, now: float, *, alive: bool = False) -> list[str]:
    """The whole summary, line by line, plain text."""
    return [
        *_head(state, now, alive=alive),
        "",
        *_subtasks(state, now),
        *_incidents(state),
        *_figures(state, now),
        *_next(state),
    ]


def _head(state: RunState, now: float, *, alive: bool) -> list[str]:
    word = run_word(state, now, alive=alive)
    label = "   (simulated model)" if state.simulated else ""
    lines = [f"{word.upper()}  {safe(state.run)}{label}", safe(state.plan.goal or state.goal, limit=110)]
    if state.ending_why:
        lines.append(safe(state.ending_why, limit=400))
    return lines


def _subtasks(state: RunState, now: float) -> list[str]:
    lines = ["What became of the subtasks"]
    rows = subtask_rows(state, now)
    width = min(TITLE, max((len(safe(spec.title, limit=TITLE)) for spec, _, _ in rows), default=0))
    for spec, subtask, where in rows:
        tries = len(subtask.attempts)
        note = f"  {tries} attempts" if tries > 1 else ""
        if subtask.parts:
            note = f"  into {', '.join(map(safe, subtask.parts))}"
        note += "  no file changed" if subtask.unchanged else ""
        sha = f"  {safe(subtask.landed[:7])}" if subtask.landed and not subtask.unchanged else ""
        mark = MARKS.get(where, "·")
        lines.append(f"  {mark} {safe(spec.id):<18} {safe(spec.title, limit=TITLE):<{width}} {where}{sha}{note}")
    return lines


def _incidents(state: RunState) -> list[str]:
    if not state.incidents:
        return []
    return ["", "What failed, and how it recovered", *(_story(incident) for incident in state.incidents)]


def _story(incident: Incident) -> str:
    first = incident.troubles[0]
    more = f" (+{len(incident.troubles) - 1} more)" if len(incident.troubles) > 1 else ""
    if incident.closed_at is None:
        return f"  · {safe(incident.subtask):<18} {incident.kind}: {safe(first.summary, limit=60)}{more}  →  still open"
    mark = "✔" if incident.recovered else "✘"
    how = "a human was asked" if incident.strategy == "human" and not incident.recovered else HOW[incident.strategy]
    return f"  {mark} {safe(incident.subtask):<18} {incident.kind}: {safe(first.summary, limit=60)}{more}  →  {how}"


def _figures(state: RunState, now: float) -> list[str]:
    found = rate_of(state.incidents)
    simulated = " (simulated: priced as if real)" if state.simulated else ""
    landed = state.commits
    each = f", {money(state.spent.dollars / landed)} a landed subtask" if landed and state.spent.dollars else ""
    lines = [
        "",
        "Figures",
        f"  recovered without a human  {rate(found.recovered, found.closed)}",
        f"  commits landed             {landed} in {_batches(state)}",
        f"  agents at once             {state.peak} at the peak, {state.policy.workers} allowed",
        f"  attempts                   {state.attempts}",
        *(
            f"  {NAMES[role]:<26} {tokens(spend)}, {money(spend.dollars)}"
            for role, spend in spend_by_role(state).items()
        ),
        f"  cost                       {money(state.spent.dollars)}{each}{simulated}{_doubt(state.doubt)}",
        f"  time                       {duration(state.seconds(now))}",
    ]
    if state.red_base and state.commits:
        never = ", ".join(safe(check.command, limit=70) for check in state.red_base)
        lines.append(f"  gate                       NEVER GREEN: {never}; red on the base, and on all that landed")
    lines += [f"  WAITING                    {safe(in_words(*out), limit=200)}" for out in state.service.items()]
    if state.sandbox == "none":
        lines.append("  sandbox                    NONE: commands ran with your rights")
    return lines


def _batches(state: RunState) -> str:
    more = untested(state.commits, commits_tested(state))
    return f"{state.landing.batches} batches ({state.landing.red} red){more}"


def _doubt(doubt: Cost) -> str:
    """What may come on top: calls that were stopped while they were under way."""
    if not doubt.calls:
        return ""
    return f", and at most {money(doubt.dollars)} for up to {doubt.calls} calls that were broken off"


def _next(state: RunState) -> list[str]:
    run, branch = safe(state.run), safe(state.result_branch)
    commands = [(f"fleet show SUBTASK --run {run}", "attempts, checks and failures of one subtask")]
    if state.published:
        commands = [
            (f"git log --oneline {safe(state.base[:7])}..{branch}", "the result branch in your repository"),
            (f"fleet merge {run} --into BRANCH", "put it on a branch of yours"),
            *commands,
        ]
    if state.ending != "landed":
        asked = state.open_questions()
        if waits := awaited(state):
            commands.append((f"fleet approve {run}", f"let begin what waits: {safe(', '.join(waits), limit=60)}"))
        commands += [(f"fleet answer {q.id} TEXT --run {run}", safe(q.text, limit=70)) for q in asked]
        commands.append((f"fleet resume {run}", "go on with it"))
    width = max(len(command) for command, _ in commands)
    return ["", "To look further", *(f"  {command:<{width}}  {what}" for command, what in commands)]
