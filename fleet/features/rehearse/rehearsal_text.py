"""A rehearsal on one screen: the verdict first, then what was measured, or done again, then what to set."""

from collections.abc import Iterator, Sequence

from dashboards.text.formats import counted, duration, money
from dashboards.text.safe import safe
from fleet.core.plans.plan import Plan
from fleet.features.rehearse.rehearsal_view import (
    GateView,
    LeftOutCommit,
    PastCommitNote,
    PastTasksView,
    RedoneCommit,
    RehearsalView,
    WorkerScore,
)

SHOWN = 8  # commits of one kind that are listed
TEXT = 160
LISTED = 12  # commits that were left out
TITLE, WHY = 56, 110
LAST_LINES = 12  # of a red gate's output


def plan_line(plan: Plan) -> str:
    """How much of a plan may run side by side."""
    free = sum(not subtask.depends_on for subtask in plan.subtasks)
    return f"{counted(len(plan.subtasks), 'commit')}, {free} of which build on none of the others"


def rehearsal_lines(view: RehearsalView) -> Iterator[str]:
    yield ""
    yield _verdict(view)
    yield f"  rehearsal  {safe(view.run)} of {safe(view.repository)}: no model was called, nothing was paid"
    yield f"  commits    {view.landed} of {view.commits} landed, from {view.base[:12]} to {view.head[:12]}"
    yield f"  tree       {_tree(view)}"
    yield from _gate_lines(view.gate)
    yield f"  attempts   {view.attempts}"
    processor = f", {view.processor_s:g} s of processor" if view.processor_s is not None else ""
    yield f"  time       {duration(view.seconds)}{processor}: {view.landed_an_hour} commits an hour at this pace"
    yield f"  workers    this machine can run about {view.workers}, limited by its {view.limited_by}"
    yield from _commit_lines("red in history: they landed, though the gate fails on them", view.red_in_history)
    yield from _commit_lines("flaky: the gate failed, then passed on the same tree", view.flaky)
    yield from _commit_lines("not for workers: the rehearsal made these changes itself", view.by_hand)
    yield ""
    yield "What to set (fleet rehearse --write puts it into fleet.toml)"
    for setting in view.settings:
        yield f"  {setting.key} = {setting.value}   {setting.reason}"


def _verdict(view: RehearsalView) -> str:
    if view.succeeded:
        return "REHEARSED  the tree equals history's"
    if not view.clean:
        return "FAILED  the rehearsal left a branch in the repository"
    return "FAILED  the tree differs from history's"


def _tree(view: RehearsalView) -> str:
    if view.tree_equal:
        return "equal to history's"
    more = f" and {len(view.differing) - SHOWN} more" if len(view.differing) > SHOWN else ""
    return f"DIFFERS in {', '.join(map(safe, view.differing[:SHOWN]))}{more}"


def _gate_lines(gate: GateView | None) -> Iterator[str]:
    if gate is None:
        yield "  gate       none: only trees were compared"
        return
    word = "green" if gate.green == gate.tries else "RED" if gate.green == 0 else "FLAKY"
    yield f"  gate       {word} in the box, {gate.green} of {gate.tries} times: {safe(gate.command, limit=TEXT)}"
    yield (
        f"             {gate.seconds:g} s, {gate.processor_s:g} s of processor, {gate.peak_mib} MiB of memory, "
        f"{gate.disk_mib} MiB of disk; set-up {gate.setup_s:g} s"
    )
    for line in gate.output.strip().splitlines()[-LAST_LINES:]:
        yield f"             | {safe(line, limit=TEXT)}"


def _commit_lines(title: str, notes: Sequence[PastCommitNote]) -> Iterator[str]:
    if not notes:
        return
    yield ""
    yield f"{len(notes)} {title}"
    for note in notes[:SHOWN]:
        yield f"  {note.commit[:12]} {safe(note.title, limit=60)}"
        if lines := note.text.strip().splitlines():
            yield f"               {safe(lines[0], limit=TEXT)}"
    if len(notes) > SHOWN:
        yield f"  … and {len(notes) - SHOWN} more (--json lists all)"


# ---- for real --------------------------------------------------------------------------------------------------------


def past_tasks_lines(view: PastTasksView) -> Iterator[str]:
    yield ""
    yield _score_line(view)
    yield f"  rehearsal  {safe(view.run)} of {safe(view.repository)}, for real{_model(view)}"
    yield f"  commits    {view.tried} done again from their messages, each on its own parent; {_left_out(view)}"
    yield f"  landed     {view.landed} of {view.tried}: the worker was done, and the gate was green"
    if view.with_tests:
        yield f"  tests      {view.passed} of {view.with_tests} pass the tests that history's commit brought"
    if view.by_gate:
        yield f"  gate only  {view.by_gate_landed} of {view.by_gate} landed without such tests: nothing broke, no more"
    yield f"  cost       {_cost(view)}"
    yield f"  time       {duration(view.seconds)}, {counted(view.attempts, 'attempt')}"
    if view.ending not in {"landed", "partial"}:
        yield f"  ended      {view.ending}: {safe(view.ending_why, limit=WHY)}"
    yield ""
    yield "commit        landed  tests   attempts    dollars  seconds  subject"
    for commit in view.redone:
        yield from _redone_lines(commit)
    yield ""
    yield "By the worker and the model of the last attempt"
    yield from map(_worker, view.workers)
    yield from _left_out_lines(view.left_out)


def _score_line(view: PastTasksView) -> str:
    each = "" if view.dollars_each is None else f", at {money(view.dollars_each)} each"
    landed = f"{view.landed} of {counted(view.tried, 'commit')} landed"
    tests = f", {view.passed} of {view.with_tests} pass history's tests" if view.with_tests else ""
    return f"REHEARSED FOR REAL  {landed}{tests}{each}{'   (simulated model)' if view.simulated else ''}"


def _model(view: PastTasksView) -> str:
    return ": the SIMULATED model, which says nothing about a real one" if view.simulated else ""


def _left_out(view: PastTasksView) -> str:
    waiting = len(view.redone) - view.tried
    untried = f"{waiting} not tried, " if waiting else ""
    return f"{untried}{len(view.left_out)} left out"


def _cost(view: PastTasksView) -> str:
    budget = f" of {money(view.budget_dollars)}" if view.budget_dollars is not None else ""
    return f"{money(view.dollars)}{budget}; {money(view.planner_dollars)} of it for the planner"


def _redone_lines(commit: RedoneCommit) -> Iterator[str]:
    landed = "yes" if commit.landed else "NO" if commit.tried else "-"
    tests = "no test" if not commit.tests else "-" if commit.passed is None else "pass" if commit.passed else "FAIL"
    yield (
        f"{commit.commit[:12]}  {landed:<6}  {tests:<7} {commit.attempts:>8}  {money(commit.dollars):>9}  "
        f"{commit.seconds:>7.0f}  {safe(commit.title, limit=TITLE)}"
    )
    if commit.why.strip():
        yield f"              {safe(commit.why.strip().splitlines()[0], limit=WHY)}"


def _worker(score: WorkerScore) -> str:
    model = f" {safe(score.model)}" if score.model is not None else ""
    tests = f"{score.passed} of {score.with_tests} pass history's tests, " if score.with_tests else ""
    return (
        f"  {safe(score.worker)}{model}: {score.landed} of {counted(score.commits, 'commit')} landed, "
        f"{tests}{counted(score.attempts, 'attempt')}, "
        f"{money(score.dollars)}, {duration(score.seconds)}"
    )


def _left_out_lines(left_out: Sequence[LeftOutCommit]) -> Iterator[str]:
    if not left_out:
        return
    yield ""
    yield f"{len(left_out)} left out: they could judge no worker here"
    for commit in left_out[:LISTED]:
        yield f"  {commit.commit[:12]} {safe(commit.title, limit=TITLE)}: {safe(commit.why, limit=WHY)}"
    if len(left_out) > LISTED:
        yield f"  … and {len(left_out) - LISTED} more (--json lists all)"
