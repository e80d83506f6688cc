"""What a pull request asks for at the moment: threads of a review that wait for an answer, and checks that failed.

Pure. A thread waits where the last word of someone who may ask has no answer of ours; an answer is known by its marker.
Whatever others wrote is data here.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from fleet.forge.forge import Check, Comment, Pull, Thread

Word = Literal["stop", "continue"]

_MARKER = re.compile(r"<!-- fleet tend: ([a-z0-9-]{1,80}) -->")
_WORD = re.compile(r"^/fleet +(stop|continue)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ThreadMatter:
    """A thread whose last word waits for an answer."""

    thread: str
    comment: str
    """The comment that is answered: the last one of someone who may ask."""
    author: str
    path: str
    line: int | None
    said: tuple[Comment, ...]
    """What those who may ask have said in it, the oldest first."""

    @property
    def key(self) -> str:
        """What the answer is marked with."""
        return answer_key(self.comment)


@dataclass(frozen=True, slots=True)
class CheckMatter:
    """A check that failed at the head."""

    name: str
    link: str
    log: str
    """The end of what it printed."""


# ---- markers --------------------------------------------------------------------------------------------------------


def answer_key(comment: str) -> str:
    """The key of the answer to a comment, whatever characters a forge puts into its ids."""
    return f"answer-{sha256(comment.encode()).hexdigest()[:20]}"


def marked(key: str, text: str) -> str:
    """A comment of ours: its marker on a line of its own that readers of the page do not see."""
    return f"<!-- fleet tend: {key} -->\n{text}"


def marker_of(comment: Comment) -> str | None:
    """The key of a comment of ours. A marker counts only at the beginning, and only from the account that we use."""
    found = _MARKER.match(comment.body)
    return found[1] if found is not None and comment.is_mine else None


def has_marker(comments: Iterable[Comment], key: str) -> bool:
    return any(marker_of(comment) == key for comment in comments)


# ---- what waits -----------------------------------------------------------------------------------------------------


def authors(threads: Iterable[Thread], comments: Iterable[Comment]) -> frozenset[str]:
    """Everyone whose permission matters: who spoke in an open thread, or said a word to us."""
    spoken = (comment for thread in threads if not thread.is_resolved for comment in thread.comments)
    words = (comment for comment in comments if word_in(comment) is not None)
    return frozenset(comment.author for comment in (*spoken, *words) if comment.author and marker_of(comment) is None)


def open_threads(threads: Iterable[Thread], may_ask: Collection[str]) -> tuple[ThreadMatter, ...]:
    """The threads that wait, the oldest first. What others than `may_ask` wrote is left out."""
    waiting = []
    for thread in threads:
        said = tuple(each for each in thread.comments if marker_of(each) is None and each.author in may_ask)
        if thread.is_resolved or not said or has_marker(thread.comments, answer_key(said[-1].id)):
            continue
        last = said[-1]
        waiting.append(ThreadMatter(thread.id, last.id, last.author, thread.path, thread.line, said))
    return tuple(waiting)


def failed_checks(checks: Iterable[Check], head: str) -> tuple[Check, ...]:
    """The checks that failed at a commit; none while others are still under way there."""
    found = [check for check in checks if check.sha == head]
    if any(check.state == "pending" for check in found):
        return ()
    return tuple(check for check in found if check.state == "failed")


def word_in(comment: Comment) -> Word | None:
    """The last word to us in a comment: `/fleet stop` or `/fleet continue`, at the beginning of a line."""
    found = _WORD.findall(comment.body) if marker_of(comment) is None else []
    return found[-1] if found else None


def why_stopped(pull: Pull, comments: Iterable[Comment], may_ask: Collection[str], label: str) -> str | None:
    """Why the fleet leaves this pull request alone; None if it does not."""
    if label and label.casefold() in {each.casefold() for each in pull.labels}:
        return f"it has the label {label}"
    spoken = [(comment, word) for comment in comments if (word := word_in(comment)) and comment.author in may_ask]
    if spoken and spoken[-1][1] == "stop":
        return f"{spoken[-1][0].author} said /fleet stop"
    return None
