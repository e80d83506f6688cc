"""What a commit of the fleet says of itself: written here, and read back here after a crash.

Titles and bodies come from models. They are cut to one line, stripped of control characters, and kept from posing as
trailers; ours are the last paragraph, and only that is read.
"""

import re
import unicodedata
from dataclasses import dataclass

from fleet.core.facts import Member
from fleet.core.ids import RunId, Sha, is_slug
from fleet.ports import Signature

LONGEST_SUBJECT = 100
LONGEST_BODY = 10_000
RUN, TASK, ATTEMPT, WORKER, ASSISTED = "Fleet-Run", "Fleet-Task", "Fleet-Attempt", "Fleet-Worker", "Assisted-by"
_POSING = re.compile(r"(?im)^(?=(?:fleet-[a-z]+|assisted-by|signed-off-by|co-authored-by)\s*:)")


@dataclass(frozen=True, slots=True)
class Person:
    """Who git is told made a commit."""

    name: str
    email: str

    def author(self) -> dict[str, str]:
        return {"GIT_AUTHOR_NAME": self.name, "GIT_AUTHOR_EMAIL": self.email}

    def committer(self) -> dict[str, str]:
        return {"GIT_COMMITTER_NAME": self.name, "GIT_COMMITTER_EMAIL": self.email}


def author_of(signature: Signature, email: str) -> Person:
    kind = f"fleet {signature.worker}"
    return Person(_name(f"{kind} ({signature.model})" if signature.model else kind), email)


def compose(signature: Signature) -> str:
    """The whole message."""
    subject = one_line(signature.title)[:LONGEST_SUBJECT].rstrip() or f"Subtask {signature.subtask}"
    trailers = [
        f"{RUN}: {signature.run}",
        f"{TASK}: {signature.subtask}",
        f"{ATTEMPT}: {signature.attempt}",
        f"{WORKER}: {one_line(signature.worker)}",
        *([f"{ASSISTED}: {one_line(signature.model)}"] if signature.model else []),
    ]
    body = _POSING.sub("| ", _plain(signature.body)[:LONGEST_BODY]).strip()
    return "\n\n".join(part for part in (subject, body, "\n".join(trailers)) if part) + "\n"


def member_of(commit: Sha, message: str, run: RunId) -> Member | None:
    """Whose work a commit is, if it is of this run."""
    said = trailers(message)
    subtask, attempt = said.get(TASK, ""), said.get(ATTEMPT, "")
    if said.get(RUN) != run or not is_slug(subtask) or not attempt.isdecimal():
        return None
    return Member(subtask=subtask, attempt=int(attempt), commit=commit)


def trailers(message: str) -> dict[str, str]:
    """What the last paragraph of a message says by name."""
    last = message.strip().rsplit("\n\n", 1)[-1]
    return dict(line.split(": ", 1) for line in last.splitlines() if ": " in line)


def one_line(untrusted: str) -> str:
    return " ".join(_plain(untrusted).split())


def _name(untrusted: str) -> str:
    return re.sub(r"[<>]", "", one_line(untrusted))


def _plain(untrusted: str) -> str:
    """Without what steers a terminal: control characters and marks that turn the direction of writing."""
    kept = (char for char in untrusted.replace("\r\n", "\n") if char in "\n\t" or unicodedata.category(char)[0] != "C")
    return "".join(kept)
