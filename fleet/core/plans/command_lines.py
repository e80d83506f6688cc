"""What a check's command says by its words alone: whether it can fail, whether it can pass, which programs it wants.

Nothing is run. Where it takes a shell to tell, nothing is said.
"""

import re
import shlex
from collections.abc import Callable

from fleet.core.plan import Criterion

SAYS_NOTHING = frozenset({"true", ":", "echo", "printf", "pwd", "date", "whoami", "sleep"})
ROOT_IS_THERE = (["-d", "."], ["-e", "."], ["-d", "./"], ["-d", "/"])
JOINS = frozenset({"&&", "||", ";", "|", "&", "|&"})
KEYWORDS = frozenset(
    {
        *("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"),
        *("function", "select", "set", "trap", "eval"),
    }
)
BUILT_IN = frozenset(
    {
        *(
            "!",
            ".",
            ":",
            "[",
            "alias",
            "break",
            "cd",
            "command",
            "continue",
            "declare",
            "echo",
            "exec",
            "exit",
            "export",
        ),
        *(
            "false",
            "getopts",
            "hash",
            "kill",
            "local",
            "printf",
            "pwd",
            "read",
            "readonly",
            "return",
            "shift",
            "source",
        ),
        *("test", "time", "times", "true", "type", "ulimit", "umask", "unset", "wait"),
    }
)
SHOWN = 100  # characters of a command in a message

Runs = Callable[[str], bool]
"""Whether there is a program of this name where checks run."""
Part = tuple[str, list[str]]
"""A simple command, and what joins it to the one before."""


def check_problem(criterion: Criterion, runs: Runs | None = None) -> str | None:
    """Why a check proves nothing, or can't be run."""
    parts = _parts(criterion.run or "")
    if not parts or criterion.run is None:
        return None
    shown = f"`{criterion.run.strip()[:SHOWN]}`"
    if criterion.fails_before and always_passes(criterion.run):
        return f"{shown} passes whatever was done; name a command that fails before the work and passes after it"
    if len(parts) == 1 and _never_passes(parts[0][1]):
        return f"{shown} can never pass"
    missing = [words[0] for _, words in parts if runs is not None and not _is_there(words[0], runs)]
    return f"there is no program {missing[0]!r} where checks run" if missing else None


def always_passes(line: str) -> bool:
    """Whether a command passes whatever was done."""
    passes = False
    for join, words in _parts(line):
        alone = _says_nothing(words)
        passes = (passes and alone) if join == "&&" else (passes or alone) if join == "||" else alone
    return passes


def _parts(line: str) -> list[Part]:
    """The simple commands of a line; nothing where it takes a shell to tell."""
    if "<<" in line or "`" in line:
        return []
    lexer = shlex.shlex(line.strip().replace("\n", " ; "), posix=True, punctuation_chars=";|&()<>{}")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = list(lexer)
    except ValueError:
        return []
    parts: list[Part] = [("", [])]
    to_file = False
    for token in tokens:
        if to_file:
            to_file = False
        elif token in JOINS:
            parts.append((token, []))
        elif set(token) <= set("<>&") and token:
            to_file = True
        elif parts[-1][1] or not re.fullmatch(r"\w+=.*", token, re.DOTALL):  # else a variable for this command
            parts[-1][1].append(token)
    parts = [(join, words) for join, words in parts if words]
    return parts if all(_is_plain(words) for _, words in parts) else []


def _is_plain(words: list[str]) -> bool:
    named = re.fullmatch(r"[\w.:/+\[-]+", words[0]) is not None and words[0] not in KEYWORDS
    return named and not any(word and set(word) <= set("(){}") for word in words)


def _says_nothing(words: list[str]) -> bool:
    program, rest = words[0], [word for word in words[1:] if word != "]"]
    if program in {"test", "["}:
        return rest in ROOT_IS_THERE
    if program == "exit":
        return rest in ([], ["0"])
    return program in SAYS_NOTHING or (program == "ls" and rest in ([], ["."]))


def _never_passes(words: list[str]) -> bool:
    return words[0] == "false" or (words[0] == "exit" and words[1:] not in ([], ["0"]))


def _is_there(program: str, runs: Runs) -> bool:
    return "/" in program or program in BUILT_IN or runs(program)
