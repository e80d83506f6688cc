"""Which commits of a repository are the fleet's, by week, model and worker, and how many were reverted later.

What a commit says of itself is a claim: anybody can write a trailer. Values are taken as text, short and on one line.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fleet.core.ids import RunId, Sha, SubtaskId

UNKNOWN = "unknown"
MOST_NAMED = 1000  # commits that one revert takes back
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{40}|[0-9a-f]{64})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Attributed:
    """A commit that says it is the fleet's."""

    commit: Sha
    at: float
    """When it was committed where it stands."""
    written_at: float
    """When its author finished it; that stays when a commit is picked or rebased."""
    run: RunId
    subtask: SubtaskId
    attempt: int
    worker: str
    model: str

    @property
    def week(self) -> str:
        """The ISO week, in UTC: `2026-W47`."""
        year, week, _ = datetime.fromtimestamp(self.at, UTC).isocalendar()
        return f"{year}-W{week:02}"


@dataclass(frozen=True, slots=True)
class Revert:
    """A commit that says it takes others back."""

    commit: Sha
    message: str

    @property
    def named(self) -> tuple[Sha, ...]:
        return tuple(_REVERTS.findall(self.message)[:MOST_NAMED])


@dataclass(frozen=True, slots=True)
class Account:
    """The fleet's commits of a repository, each counted once."""

    commits: Sequence[Attributed]
    reverted: frozenset[Sha]
    """Those of them that are taken back today."""
    all_commits: int
    """Whoever made them."""


def account(
    found: Iterable[Attributed], reverts: Sequence[Revert], brought: Mapping[Sha, Collection[Sha]], all_commits: int
) -> Account:
    """Each commit once: one that was picked or rebased stands in several places, and the first counts.

    `reverts` come with the newest first, and `brought` says of a merge that is reverted which commits came with it.
    """
    gone = _gone(reverts, brought)
    first: dict[tuple[RunId, SubtaskId, int, float], Attributed] = {}
    reverted: set[Sha] = set()
    for one in sorted(found, key=lambda one: (one.at, one.commit)):
        kept = first.setdefault((one.run, one.subtask, one.attempt, one.written_at), one)
        if one.commit in gone:
            reverted.add(kept.commit)
    return Account(tuple(first.values()), frozenset(reverted), all_commits)


def _gone(reverts: Sequence[Revert], brought: Mapping[Sha, Collection[Sha]]) -> set[Sha]:
    """What is taken back by a commit that is not taken back itself, by a newer one: a revert names what is older."""
    gone: set[Sha] = set()
    for revert in reverts:
        if revert.commit not in gone:
            gone.update(revert.named)
    return gone.union(*(brought.get(named, ()) for named in gone))


def account_view(told: Account) -> dict[str, Any]:
    """What `fleet commits --json` prints."""
    rows: Counter[tuple[str, str, str]] = Counter((one.week, one.model, one.worker) for one in told.commits)
    gone = Counter((one.week, one.model, one.worker) for one in told.commits if one.commit in told.reverted)
    weeks: dict[str, list[dict[str, Any]]] = {}
    for week, model, worker in sorted(rows):
        key = (week, model, worker)
        row = {"model": model, "worker": worker, "commits": rows[key], "reverted": gone[key]}
        weeks.setdefault(week, []).append(row)
    commits, reverted = len(told.commits), len(told.reverted)
    return {
        "commits": commits,
        "all_commits": told.all_commits,
        "reverted": reverted,
        "reverted_share": round(reverted / commits, 4) if commits else None,
        "runs": len({one.run for one in told.commits}),
        "weeks": [
            {
                "week": week,
                "commits": sum(row["commits"] for row in by),
                "reverted": sum(row["reverted"] for row in by),
                "by": by,
            }
            for week, by in weeks.items()
        ],
    }
