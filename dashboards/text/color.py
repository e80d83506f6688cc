"""Colours for lines of plain text: what went well, what failed, what waits for a person.

A line says everything without its colours; they are added to what is printed and change no character of it.
"""

import re

RESET, BOLD, RED, GREEN, YELLOW, CYAN, DIM = (f"\x1b[{code}m" for code in ("0", "1", "31", "32", "33", "36", "2"))

_WORDS = {
    GREEN: "landed merged passed ok LANDED ✔",
    RED: "failed blocked FAIL FAILED REFUSED ABORTED aborted interrupted INTERRUPTED ✘",
    YELLOW: "NEEDS APPROVAL QUESTION WAITING NONE PARTIAL BUDGET CANCELLED FLAKY partial paused budget cancelled "
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
    """A line of an answer: titles bold, its first mark and its first state in their colours."""
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
    """A line of a patch, as git colours it."""
    if line.startswith(("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "similarity", "rename ")):
        return f"{BOLD}{line}{RESET}"
    tones = {"+": GREEN, "-": RED, "@": CYAN}
    tone = tones.get(line[:1])
    return f"{tone}{line}{RESET}" if tone is not None else line


def _with_tone(line: str, span: tuple[int, int]) -> str:
    start, end = span
    return f"{line[:start]}{TONES[line[start:end]]}{line[start:end]}{RESET}{line[end:]}"
