"""A rehearsal on one screen: the verdict first, then what was measured, then what to set."""

from collections.abc import Iterator, Sequence

from dashboards.text.formats import counted, duration
from dashboards.text.safe import safe
from fleet.core.plans.plan import Plan
from fleet.core.views.repository.rehearsal_view import GateView, PastCommitNote, RehearsalView

SHOWN = 8  # commits of one kind that are listed
TEXT = 160
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
    faults = f", {counted(view.faults, 'fault')} mixed in, {counted(view.engines, 'start')} of the engine"
    yield f"  attempts   {view.attempts}{faults if view.faults else ''}"
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
