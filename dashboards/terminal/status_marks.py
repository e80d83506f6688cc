"""Short words and marks for what is shown: each state has a sign and a word, so that colour only helps."""

from collections.abc import Mapping

from dashboards.terminal.lines import Span
from fleet.core.ids import SubtaskId
from fleet.core.standing import Standing
from fleet.core.state import Attempt, RunState
from fleet.core.views import run_word

STANDINGS: dict[Standing, tuple[str, str]] = {
    "waiting": ("·", "dim"),
    "ready": ("○", ""),
    "running": ("●", "accent"),
    "verifying": ("◐", "accent"),
    "landing": ("▲", "accent"),
    "merged": ("✔", "good"),
    "failed": ("✘", "bad"),
    "blocked": ("✘", "bad"),
    "dropped": ("-", "dim"),
    "escalated": ("?", "warn"),
    "split": ("Y", "dim"),
}
PHASES: dict[str, tuple[str, str]] = {
    "starting": ("○", "dim"),
    "working": ("●", "accent"),
    "checking": ("◐", "accent"),
    "landing": ("▲", "good"),
}
RUNS: dict[str, tuple[str, str]] = {
    "landed": ("✔", "good"),
    "running": ("●", "accent"),
    "planning": ("●", "accent"),
    "paused": ("‖", "warn"),
    "draining": ("‖", "warn"),
    "awaiting approval": ("?", "warn"),
    "over budget": ("!", "warn"),
    "interrupted": ("✘", "bad"),
}


def to_land(state: RunState, where: Mapping[SubtaskId, Standing]) -> int:
    """How many subtasks there are to land: not those that became parts, nor areas, whose work is that of others."""
    return sum(standing not in {"split", "dropped"} for id_, standing in where.items() if id_ not in state.areas)


def standing_span(standing: Standing) -> Span:
    mark, tone = STANDINGS[standing]
    return f"{mark} {standing}", tone


def phase(attempt: Attempt) -> str:
    if attempt.commit is not None:
        return "landing" if attempt.verified else "checking"
    return "working" if attempt.working else "starting"


def phase_span(attempt: Attempt) -> Span:
    word = phase(attempt)
    mark, tone = PHASES[word]
    return f"{mark} {word}", tone


def run_span(state: RunState, now: float, *, alive: bool) -> Span:
    word = run_word(state, now, alive=alive)
    mark, tone = RUNS.get(word, ("✘", "bad"))
    return f"{mark} {word}", tone


def age(seconds: float) -> str:
    """A time span in at most six characters."""
    seconds = max(0, int(seconds))
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes}m{rest:02}"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}" if hours < 100 else f"{hours // 24}d{hours % 24:02}"  # noqa: PLR2004 - four days


def model(name: str | None) -> str:
    """A model without the maker's name, which is the same for all."""
    return (name or "").removeprefix("claude-")


def clock_in(state: RunState, at: float) -> str:
    """When in the run something was."""
    minutes, seconds = divmod(int(max(0.0, at - state.started_at)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:3}:{seconds:02}"
