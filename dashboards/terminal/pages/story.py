"""One subtask in lines: what it is for, what was tried, what its checks said."""

from collections.abc import Sequence
from pathlib import Path

from dashboards.safe import safe_block
from dashboards.tables import subtask_lines
from dashboards.terminal.lines import Line, heading, shown
from dashboards.terminal.overview import event_line
from dashboards.terminal.watched import Watched
from dashboards.terminal.words import clock_in, standing_span
from fleet.core.facts import CheckRun
from fleet.core.standing import standing
from fleet.core.state import Attempt, RunState
from fleet.core.views import subtask_view

LOG_BYTES = 400_000
LOG_LINES = 400


def story_lines(watched: Watched, state: RunState, id_: str) -> list[Line]:
    """What it is, every attempt with its checks, its incidents, and what happened to it."""
    now = watched.now
    view = subtask_view(state, state.spec(id_), now)
    lines: list[Line] = [(standing_span(standing(state, id_, now)),)]
    question = state.subtasks[id_].question
    if question is not None:
        lines.append(((f"? {question}: {shown(state.questions[question].text)}  → a answers", "warn"),))
    lines += [((text, _tone(text)),) for text in subtask_lines(view)]
    events = watched.about(id_)
    if events:
        lines += [(), heading("WHAT HAPPENED"), *(event_line(state, event) for event in events)]
    return lines


def planner_lines(state: RunState) -> list[Line]:
    """Why the plan is as it is, version by version."""
    lines: list[Line] = [heading("THE PLANNER", f"called {state.planning.calls} times")]
    for version in reversed(state.versions):
        size = f"{len(version.plan.subtasks)} subtasks, by {shown(version.by, 40)}"
        title = f"{clock_in(state, version.at)}  version {version.plan.version}, {size}"
        lines += [(), ((title, "bold"),)]
        lines += [((f"  {line}", ""),) for line in safe_block(version.why).split("\n")]
    return lines


def _tone(line: str) -> str:
    words = line.split()
    if not words:
        return ""
    if line.startswith(("Attempt ", "Incident ")):
        return "bad" if "failed:" in line else "bold"
    if words[0] in {"FAILED", "failure"}:
        return "bad"
    return "good" if words[0] == "passed" else "warn" if words[0] == "FLAKY" else ""


def check_lines(attempt: Attempt, logs: Sequence[Path | None]) -> list[Line]:
    """Each check with all it printed, as far as its log was kept."""
    lines: list[Line] = []
    for check, log in zip(attempt.checks, logs, strict=True):
        word, tone = _verdict(check)
        lines.append(
            (
                (f"{word}  ", tone),
                (shown(check.command), "bold"),
                (f"  {check.seconds:.1f} s, exit code {check.exit_code}", "dim"),
            )
        )
        lines.append(((f"  {shown(check.criterion)}", "dim"),))
        said = _log(log) or check.output
        lines += [((f"    {line}", ""),) for line in safe_block(said, lines=LOG_LINES).split("\n")]
        lines.append(())
    return lines


def _verdict(check: CheckRun) -> tuple[str, str]:
    if check.passed:
        return "✔ passed", "good"
    return ("~ FLAKY", "warn") if check.flaky else ("✘ FAILED", "bad")


def _log(path: Path | None) -> str:
    """The head and the tail of a log; empty where there is none."""
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            text = file.read(LOG_BYTES)
    except (OSError, ValueError):  # ValueError: a name that is no file's
        return ""
    return text.decode("utf-8", "replace")
