"""The logs of set-up and gate, as `fleet logs gate` and `fleet logs setup` print them."""

from collections.abc import Iterator
from pathlib import Path

from dashboards.text.formats import counted
from dashboards.text.safe import safe, safe_block
from fleet.core.state.state import RunState
from fleet.core.views.repository.log_view import LogView
from fleet.errors import FleetError, UsageError
from fleet.runs.run_folder import RunFolder
from worktrees.sandbox.checks import log_stem
from worktrees.setup.setup import LOG

CHECK_LOGS = frozenset({"gate", "setup"})
"""What `fleet logs` takes in place of a subtask."""
LINES = 20_000  # of a log on a terminal; the middle is left out


def check_log(folder: RunFolder, state: RunState, of: str) -> LogView:
    """The last log of the gate or the set-up command. Raises `UsageError` where there is none."""
    paths = _logs_of_setup(folder) if of == "setup" else _logs_of_gate(folder, state)
    if not paths:
        why = "no set-up command ran in it" if of == "setup" else "its gate did not run"
        raise UsageError(f"{folder.run} has no log of the {of}: {why}", hint=f"`fleet show {folder.run}` says more")
    *earlier, last = map(str, sorted(paths, key=lambda path: path.stat().st_mtime_ns))
    try:
        text = Path(last).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FleetError(f"{last} can't be read: {error.strerror}") from error
    return LogView(of, last, text, tuple(earlier))


def _logs_of_setup(folder: RunFolder) -> list[Path]:
    return list(folder.checks.glob(f"{LOG}-*.log"))


def _logs_of_gate(folder: RunFolder, state: RunState) -> list[Path]:
    commands = {state.gate_command or "", *(check.command for check in state.base_checks), *state.gate} - {""}
    return [path for command in commands for path in folder.checks.glob(f"{log_stem('*', command)}-*.log")]


def log_lines(view: LogView) -> Iterator[str]:
    yield safe_block(view.text, lines=LINES)
    more = f"; {counted(len(view.earlier), 'earlier log')} beside it" if view.earlier else ""
    yield f"({safe(view.log)}{more})"
