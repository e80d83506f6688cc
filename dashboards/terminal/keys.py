"""Every key, in one place: the help, the command palette and docs/terminal.md show these tables."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, zip_longest

ACTIONS: Mapping[str, tuple[str, str]] = {
    "a": ("answer", "answer the question under the cursor, or the first open one"),
    "A": ("approve", "approve what waits for you: all of it, the marked subtasks, or the one under the cursor"),
    "X": ("reject", "reject it with a reason; the planner revises it"),
    "E": ("edit", "edit the plan in $EDITOR; the result is validated before anything changes"),
    "r": ("retry", "retry the marked subtasks, or the one under the cursor, with your guidance"),
    "T": ("tell", "tell the agents at the marked subtasks, or the one under the cursor, what to do while they work"),
    "x": ("drop", "drop the marked subtasks, or the one under the cursor, with a reason"),
    "P": ("pause", "start no new agents; press again to unpause"),
    "W": ("workers", "set the maximum number of agents"),
    "B": ("budget", "set the maximum cost of the run in USD"),
    "R": ("resume", "resume an interrupted run"),
    "C": ("cancel", "cancel the run and stop its agents; asks for confirmation"),
    "m": ("take", "take the result of an ended run into the branch that is checked out: `fleet merge`"),
    "D": ("drain", "let running agents finish, then stop; asks for confirmation"),
}
"""Keys that send requests, each with the name of its action."""
GROUPS: Mapping[str, Mapping[str, str]] = {
    "Moving": {
        "↑↓ jk": "the row above, the row below",
        "PgUp PgDn": "a page up or down; Ctrl-U and Ctrl-D do the same",
        "g G": "the first row, the last row; at its end, a page follows new rows",
        "Enter": "open the row: a subtask, a question, a run, a version of the plan",
        "Esc": "back; on a page: clear the filter or the marks",
        "Tab": "the next page; Shift-Tab: the previous one",
        "0 … 8": "runs, overview, agents, plan, landing, incidents, events, cost, nodes",
        "/": "show only rows with these words; Enter keeps the filter, Esc clears it. In a text: find them",
        "n N": "in a text: the next line with these words, the previous one",
        "y": "copy the name under the cursor, the commit of an attempt, or the command that takes a result",
        "o O": "agents: change the order, or reverse it: busy ones first, or by a column; or click on a title",
        "Space *": "mark the subtask under the cursor, or all in the list; again: unmark. Actions are about all marked",
        "Backspace": "the page that was shown before this one",
    },
    "Actions: each sends a request to the run's inbox, which it reads now or when it resumes": {
        key: meaning for key, (_, meaning) in ACTIONS.items()
    },
    "A subtask": {
        "1 … 4": "its story, its conversation, its diff, its checks with their logs",
        "[ ]": "the previous attempt, the next one",
        "f": "conversation: fold the messages to a line each, or unfold them",
        "d": "diff: the old and the new side by side, or one below the other",
        "s": "open a shell in a copy of the attempt's commit",
        "e": "open $EDITOR in such a copy",
    },
    "A replay": {
        "Space": "pause or play",
        ".": "to the next fact",
        "+ -": "twice as fast, half as fast",
        "< >": "ten seconds back, ten seconds forward",
        "{ }": "to the failure before, to the next one; a click on the bar goes there",
    },
    "The screen": {
        "q": "leave; the run continues without you",
        "Ctrl-C": "leave, drain or cancel: asks which",
        "t": "switch between light and dark",
        "Ctrl-P": "find any command by name",
        "?": "show this help",
    },
}


TWO_COLUMNS = 96  # cells: from this width on the help has two columns
KEYS = 11  # cells of the column of keys
GAP = "   "


def help_text(width: int = 80) -> str:
    """All keys, in two columns where there is room."""
    if width < TWO_COLUMNS:
        return "\n".join(_column(GROUPS, width)).strip()
    size = (width - len(GAP)) // 2
    columns = [_column({title: GROUPS[title]}, size) for title in GROUPS]
    left, right = min(_splits(columns), key=lambda split: max(map(len, split)))
    rows = zip_longest(left, right, fillvalue="")
    return "\n".join(f"{one:<{size}}{GAP}{other}".rstrip() for one, other in rows).strip()


def _splits(groups: Sequence[list[str]]) -> Iterator[tuple[list[str], list[str]]]:
    """All ways to put groups into two columns, the first group into the first."""
    for sides in product((True, False), repeat=len(groups) - 1):
        split: tuple[list[str], list[str]] = ([], [])
        for group, is_right in zip(groups, (False, *sides), strict=True):
            split[is_right].extend(group)
        yield split


def _column(groups: Mapping[str, Mapping[str, str]], width: int) -> list[str]:
    lines = []
    for title, keys in groups.items():
        lines += textwrap.wrap(title, width)
        for key, meaning in keys.items():
            first, rest = f"  {key:<{KEYS}}", " " * (KEYS + 2)
            lines += textwrap.wrap(meaning, width, initial_indent=first, subsequent_indent=rest)
        lines.append("")
    return lines
