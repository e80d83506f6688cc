"""Formatting of numbers, durations and lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from fleet.read.figures import Figure, Value, figures_of

if TYPE_CHECKING:
    from fleet.read.agent_rows import AgentRow
    from fleet.read.run import RunSnapshot
    from fleet.read.run_view import StatusView, TokensView


SPARKS = "▁▂▃▄▅▆▇█"


class FieldKind(Protocol):
    """A run, or a view of one, that records whether it is a rehearsal or simulated."""

    @property
    def simulated(self) -> bool: ...

    @property
    def rehearsal(self) -> object: ...

    @property
    def for_real(self) -> bool: ...


def kind_mark(run: FieldKind) -> str:
    """A marker for rehearsals and simulated models. Empty for a real run."""
    if run.for_real:
        return f"  (rehearsal for real{', simulated model' if run.simulated else ''})"
    if run.rehearsal:
        return "  (rehearsal: no model)"
    return "  (simulated model)" if run.simulated else ""


def duration(seconds: float) -> str:
    if seconds < 59.5:  # noqa: PLR2004 - 59.5 s rounds to a minute
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def clock_in(run: RunSnapshot, at: float) -> str:
    """The time since the start of the run, in minutes and seconds."""
    minutes, seconds = divmod(int(max(0.0, at - run.started_at)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:3}:{seconds:02}"


def moment(at: float) -> str:
    """Date and time in the local time zone."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def figure_text(figure: Figure, value: Value) -> str:
    """Format a figure of a status by its kind."""
    if isinstance(value, tuple):
        return rate(*value) if figure.kind == "rate" else f"{value[0]} of {value[1]}"
    texts: Mapping[str, Callable[[float], str]] = {
        "dollars": money,
        "seconds": duration,
        "moment": moment,
        "flag": lambda value: "yes" if value else "no",
        "share": lambda value: f"{value:.0%}",
    }
    return texts.get(figure.kind, "{:g}".format)(value)


def figure_rows(status: StatusView) -> list[tuple[str, str]]:
    """The titles and values of the figures that text output shows."""
    values = ((figure, status.figures[figure.name]) for figure in figures_of("text"))
    return [(figure.title, figure_text(figure, value)) for figure, value in values if value is not None]


def sparkline(values: Sequence[float]) -> str:
    """A small chart in one line of text. Empty if no value is above zero."""
    top = max(values, default=0)
    return "".join(SPARKS[round(value / top * (len(SPARKS) - 1))] for value in values) if top > 0 else ""


def count(number: int) -> str:
    for limit, size, unit in ((999_950, 1_000_000, "M"), (10_000, 1000, "k")):
        if number >= limit:
            return f"{number / size:.1f}{unit}"
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """`1 batch`, `2 batches`: the number with its noun."""
    plural = "" if number == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{count(number)} {noun}{plural}"


def listed(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`: at most `most` names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def money(dollars: float | None) -> str:
    if dollars is None:
        return "unknown"
    return f"${dollars:.2f}" if dollars >= 1 or dollars == 0 else f"${dollars:.4f}"


def rate(recovered: int, closed: int) -> str:
    """Never a rate without its denominator."""
    return f"{recovered / closed:.0%} ({recovered} of {closed})" if closed else "no failures"


def untested(commits: int, tested: int) -> str:
    """A suffix for a number of commits if not every tree was tested (`landing.every_commit`)."""
    rest = commits - tested
    return f", {count(rest)} only tested together with the next commit" if rest > 0 else ""


def tokens(used: TokensView) -> str:
    read = used.input + used.cache_read + used.cache_write
    cached = f", {used.cache_read / read:.0%} from cache" if read else ""
    return f"{count(read)} in{cached}, {count(used.output)} out, {count(used.calls)} calls"


def tool_call(doing: str) -> str:
    """The current tool call of an agent, with a short name for the edit tool."""
    return doing.replace("str_replace_based_edit_tool", "edit")


def activity_of(agent: AgentRow) -> str:
    """The current tool call of an agent, and its last words."""
    return f"{tool_call(agent.doing)}  {agent.said}".strip() if agent.doing else ""


# ---- color -----------------------------------------------------------------------------------------------------------
# Colors for lines of plain text: success, failure, waiting for a person.
#
# Lines are complete without colors. Coloring adds escape sequences and does not change the text.


RESET, BOLD, RED, GREEN, YELLOW, CYAN, DIM = (f"\x1b[{code}m" for code in ("0", "1", "31", "32", "33", "36", "2"))

_WORDS = {
    GREEN: "landed merged passed ok LANDED ✔",
    RED: "failed blocked FAIL FAILED REFUSED ABORTED aborted interrupted INTERRUPTED ✘",
    YELLOW: "NEEDS APPROVAL QUESTION WAITING WARN NONE PARTIAL BUDGET CANCELLED FLAKY partial paused budget cancelled "
    "escalated ?",
    CYAN: "running planning draining PAUSED RUNNING PLANNING ┬",
}
TONES = {word: tone for tone, words in _WORDS.items() for word in words.split()}

_TITLE = re.compile(r"[A-Z][a-z]+(?: [a-z]+)*")
_HEAD = re.compile(r"[A-Z_]{2,}(?: {2,}[A-Z_, ]+)+")
_ADVICE = re.compile(r"\s+→ ")
_FIRST = re.compile(r"\s*(\S+)(?=\s|$)")
_CELL = re.compile(rf"(?<=  )({'|'.join(re.escape(word) for word in TONES if word.isalpha())})(?= {{2}}|$| {{2}}\()")


def painted(line: str) -> str:
    """Color a line of output: titles in bold, the first mark and the first state in their colors."""
    if _TITLE.fullmatch(line) or _HEAD.fullmatch(line) or line.startswith("── "):
        return f"{BOLD}{line}{RESET}"
    if _ADVICE.match(line):
        return f"{CYAN}{line}{RESET}"
    first = _FIRST.match(line)
    if first is not None and first[1] in TONES:
        return _with_tone(line, first.span(1))
    cell = _CELL.search(line)
    return _with_tone(line, cell.span(1)) if cell is not None else line


def painted_diff(line: str) -> str:
    """Color a line of a patch as git does."""
    if line.startswith(("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "similarity", "rename ")):
        return f"{BOLD}{line}{RESET}"
    tones = {"+": GREEN, "-": RED, "@": CYAN}
    tone = tones.get(line[:1])
    return f"{tone}{line}{RESET}" if tone is not None else line


def _with_tone(line: str, span: tuple[int, int]) -> str:
    start, end = span
    return f"{line[:start]}{TONES[line[start:end]]}{line[start:end]}{RESET}{line[end:]}"
