"""The messages of the fleet's commits: written here, and read back here after a crash.

Titles and bodies come from models. They are cut to one line, stripped of control characters, and kept from posing as
trailers and from closing issues of a forge; ours are the last paragraph, and only that is read.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.core.base.ids import RunId, Sha, is_slug
from fleet.core.state.facts import Member
from fleet.ports.worktrees import Signature

LONGEST_SUBJECT = 100
LONGEST_BODY = 10_000
RUN, TASK, ATTEMPT, WORKER, ASSISTED = "Fleet-Run", "Fleet-Task", "Fleet-Attempt", "Fleet-Worker", "Assisted-by"
DIGITS = 9  # of an attempt's number
_PARAGRAPHS = re.compile(r"\n\s*\n")
_POSING = re.compile(r"(?im)^(?=(?:fleet-[a-z]+|assisted-by|signed-off-by|co-authored-by)\s*:)")


@dataclass(frozen=True, slots=True)
class Person:
    """The author or the committer of a commit."""

    name: str
    email: str

    def environment(self) -> dict[str, str]:
        """The variables that make git name this person as author and committer."""
        author = {"GIT_AUTHOR_NAME": self.name, "GIT_AUTHOR_EMAIL": self.email}
        return {**author, "GIT_COMMITTER_NAME": self.name, "GIT_COMMITTER_EMAIL": self.email}


def committer_of(name: str, email: str) -> Person:
    """The committer of all commits: the configured author, or the fleet."""
    return Person(name or "fleet", email)


def author_of(signature: Signature, name: str, email: str) -> Person:
    """The configured author, or the worker with its model."""
    if name:
        return Person(name, email)
    worker = f"fleet {signature.worker}"
    name = one_line(f"{worker} ({signature.model})" if signature.model else worker)
    return Person(re.sub(r"[<>]", "", name), email)


def compose(signature: Signature) -> str:
    """The whole message."""
    text = f"{one_line(signature.title)}\n{_plain(signature.body)[:LONGEST_BODY]}"
    title, _, body = without_closing_words(text).partition("\n")
    subject = title[:LONGEST_SUBJECT].rstrip() or f"Subtask {signature.subtask}"
    lines = [
        f"{RUN}: {signature.run}",
        f"{TASK}: {signature.subtask}",
        f"{ATTEMPT}: {signature.attempt}",
        f"{WORKER}: {one_line(signature.worker)}",
        *([f"{ASSISTED}: {one_line(signature.model)}"] if signature.model else []),
    ]
    body = _POSING.sub("| ", body).strip()
    return "\n\n".join(part for part in (subject, body, "\n".join(lines)) if part) + "\n"


def member_of(commit: Sha, message: str, run: RunId) -> Member | None:
    """The subtask and attempt of a commit, if it is of this run."""
    values = parse_trailers(message)
    subtask, attempt = values.get(TASK, ""), attempt_number(values)
    if values.get(RUN) != run or not is_slug(subtask) or attempt is None:
        return None
    return Member(subtask=subtask, attempt=attempt, commit=commit)


def parse_trailers(message: str) -> dict[str, str]:
    """The values in the last paragraph of a message, by name. The last of a name counts: ours follow all others."""
    last = _PARAGRAPHS.split(message.strip())[-1]
    return dict(line.rstrip("\r").split(": ", 1) for line in last.split("\n") if ": " in line)


def attempt_number(values: Mapping[str, str]) -> int | None:
    """The number of the attempt among trailers; None where it is not one of ours."""
    number = values.get(ATTEMPT, "")
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= DIGITS else None


def one_line(untrusted: str) -> str:
    return " ".join(_plain(untrusted).split())


def _plain(untrusted: str) -> str:
    """Without what steers a terminal: control characters and marks that turn the direction of writing."""
    plain = (char for char in untrusted.replace("\r\n", "\n") if char in "\n\t" or unicodedata.category(char)[0] != "C")
    return "".join(plain)


# ---- closing words ---------------------------------------------------------------------------------------------------
# Words in a commit message by which a forge closes an issue, once the commit is on its default branch.
#
# GitHub, GitLab, Gitea and Bitbucket know such words, in forms that differ a little: "fixes #7", "Closes:
# acme/shop#7", "resolve issue #7", "implements https://…/issues/7".


_WORD = r"\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?|reopen(?:s|ed|ing)?)"
_BETWEEN = r"[\s:,*_~(\[`'\"-]{1,20}(?:(?:issues?|bugs?|tickets?)\s{1,20})?"
_REFERENCE = r"(?:[\w./-]{0,200}#\d+|GH-\d+|https?://[^\s<>()\[\]]{1,200}/\d[^\s<>()\[\]]{0,200})"
_CLOSES = re.compile(rf"({_WORD}{_BETWEEN})({_REFERENCE})", re.IGNORECASE)


def without_closing_words(text: str) -> str:
    """The text, still with its references, but none directly behind a word that closes: "fixes (see #7)"."""
    return _CLOSES.sub(r"\1(see \2)", text)
