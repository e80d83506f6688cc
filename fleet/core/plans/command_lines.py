"""What the words of a check's command reveal: whether it can fail, whether it can pass, and which programs it needs.

Runs nothing. Finds nothing in lines that only a shell could parse.
"""

import re
import shlex
from collections.abc import Callable

from fleet.core.plans.plan import Criterion

ALWAYS_PASS = frozenset("true : echo printf pwd date whoami sleep".split())
TESTS_OF_THE_ROOT = (["-d", "."], ["-e", "."], ["-d", "./"], ["-d", "/"])
JOINS = frozenset({"&&", "||", ";", "|", "&", "|&"})
KEYWORDS = frozenset("if then else elif fi for while until do done case esac function select set trap eval".split())
BUILT_IN = frozenset(
    "! . : [ alias break cd command continue declare echo exec exit export false getopts hash kill local printf pwd "
    "read readonly return shift source test time times true type ulimit umask unset wait".split()
)
SHOWN = 100  # characters of a command in a message

Runs = Callable[[str], bool]
"""Whether a program of this name exists where checks run."""
Part = tuple[str, list[str]]
"""What joins a simple command to the one before it, and its words."""


def check_problem(criterion: Criterion, runs: Runs | None = None) -> str | None:
    """Why a check proves nothing or can't run; None if nothing is wrong."""
    parts = _parts(criterion.run or "")
    if not parts or criterion.run is None:
        return None
    shown = f"`{criterion.run.strip()[:SHOWN]}`"
    if criterion.fails_before and always_passes(criterion.run):
        return f"{shown} always passes; use a command that fails before the work and passes after it"
    if len(parts) == 1 and _never_passes(parts[0][1]):
        return f"{shown} can never pass"
    missing = [words[0] for _, words in parts if runs is not None and not _exists(words[0], runs)]
    return f"program {missing[0]!r} does not exist where checks run" if missing else None


def always_passes(line: str) -> bool:
    """Whether a command passes regardless of the work."""
    passes = False
    for join, words in _parts(line):
        part_passes = _part_always_passes(words)
        if join == "&&":
            passes = passes and part_passes
        elif join == "||":
            passes = passes or part_passes
        else:
            passes = part_passes
    return passes


def _parts(line: str) -> list[Part]:
    """The simple commands of a line; empty if only a shell could parse it."""
    if "<<" in line or "`" in line:
        return []
    lexer = shlex.shlex(line.strip().replace("\n", " ; "), posix=True, punctuation_chars=";|&()<>{}")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = list(lexer)
    except ValueError:
        return []
    parts: list[Part] = [("", [])]
    after_redirection = False
    for token in tokens:
        if after_redirection:
            after_redirection = False
        elif token in JOINS:
            parts.append((token, []))
        elif token and set(token) <= set("<>&"):
            after_redirection = True
        elif parts[-1][1] or not re.fullmatch(r"\w+=.*", token, re.DOTALL):  # skips variables set for the command
            parts[-1][1].append(token)
    parts = [(join, words) for join, words in parts if words]
    return parts if all(_is_simple(words) for _, words in parts) else []


def _is_simple(words: list[str]) -> bool:
    is_program = re.fullmatch(r"[\w.:/+\[-]+", words[0]) is not None and words[0] not in KEYWORDS
    return is_program and not any(word and set(word) <= set("(){}") for word in words)


def _part_always_passes(words: list[str]) -> bool:
    program, rest = words[0], [word for word in words[1:] if word != "]"]
    if program in {"test", "["}:
        return rest in TESTS_OF_THE_ROOT
    if program == "exit":
        return rest in ([], ["0"])
    return program in ALWAYS_PASS or (program == "ls" and rest in ([], ["."]))


def _never_passes(words: list[str]) -> bool:
    return words[0] == "false" or (words[0] == "exit" and words[1:] not in ([], ["0"]))


def _exists(program: str, runs: Runs) -> bool:
    return "/" in program or program in BUILT_IN or runs(program)
