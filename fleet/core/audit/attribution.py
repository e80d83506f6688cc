"""The fleet's commits in a repository, by week, model and worker, and how many of them were reverted later.

What a commit says about itself is a claim, as anyone can write a trailer. Its values are short texts of one line.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fleet.core.base.ids import RunId, Sha, SubtaskId

UNKNOWN = "unknown"
MOST_NAMED = 1000  # commits that one message may revert
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{40}|[0-9a-f]{64})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Attributed:
    """A commit that the fleet made, according to its trailers."""

    commit: Sha
    at: float
    """Its commit time."""
    written_at: float
    """Its author time, which stays when a commit is cherry-picked or rebased."""
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
    """A commit that reverts others, according to its message."""

    commit: Sha
    message: str

    @property
    def named(self) -> tuple[Sha, ...]:
        return tuple(_REVERTS.findall(self.message)[:MOST_NAMED])


@dataclass(frozen=True, slots=True)
class FleetCommits:
    """The fleet's commits in a repository, each counted once."""

    commits: Sequence[Attributed]
    reverted: frozenset[Sha]
    """The commits that are reverted now."""
    all_commits: int
    """The number of all commits, by anyone."""


def fleet_commits(
    found: Iterable[Attributed],
    reverts: Sequence[Revert],
    merged_by: Mapping[Sha, Collection[Sha]],
    all_commits: int,
) -> FleetCommits:
    """Count each commit once: one that was cherry-picked or rebased is there several times, and the first counts.

    `reverts` are ordered newest first. `merged_by` has the commits that came with each reverted merge.
    """
    reverted_ids = _reverted(reverts, merged_by)
    first: dict[tuple[RunId, SubtaskId, int, float], Attributed] = {}
    reverted: set[Sha] = set()
    for commit in sorted(found, key=lambda commit: (commit.at, commit.commit)):
        counted = first.setdefault((commit.run, commit.subtask, commit.attempt, commit.written_at), commit)
        if commit.commit in reverted_ids:
            reverted.add(counted.commit)
    return FleetCommits(tuple(first.values()), frozenset(reverted), all_commits)


def _reverted(reverts: Sequence[Revert], merged_by: Mapping[Sha, Collection[Sha]]) -> set[Sha]:
    """The commits reverted by a commit that is not itself reverted by a newer one."""
    reverted: set[Sha] = set()
    for revert in reverts:
        if revert.commit not in reverted:
            reverted.update(revert.named)
    return reverted.union(*(merged_by.get(commit, ()) for commit in reverted))


@dataclass(frozen=True, slots=True)
class AuthorCounts:
    """Commits of one model and worker in a week."""

    model: str
    worker: str
    commits: int
    reverted: int
    """How many of them were reverted later."""


@dataclass(frozen=True, slots=True)
class WeekCounts:
    """Commits of one week."""

    week: str
    """The ISO week, in UTC: `2026-W47`."""
    commits: int
    reverted: int
    """How many of them were reverted later."""
    by: tuple[AuthorCounts, ...]
    """By model and worker."""


@dataclass(frozen=True, slots=True)
class CommitsView:
    """The fleet's commits in a repository, counted."""

    since: str | None
    """The moment that was asked for; null for all commits."""
    commits: int
    all_commits: int
    """All commits, including the fleet's."""
    reverted: int
    """How many of the fleet's were reverted later."""
    reverted_share: float | None
    """`reverted` of `commits`; null if there are none."""
    runs: int
    """The number of runs that they come from."""
    weeks: tuple[WeekCounts, ...]


def commits_view(found: FleetCommits, *, since: str | None = None) -> CommitsView:
    counts = Counter((commit.week, commit.model, commit.worker) for commit in found.commits)
    reverted = Counter((c.week, c.model, c.worker) for c in found.commits if c.commit in found.reverted)
    weeks: dict[str, list[AuthorCounts]] = {}
    for key in sorted(counts):
        week, model, worker = key
        weeks.setdefault(week, []).append(AuthorCounts(model, worker, counts[key], reverted[key]))
    share = len(found.reverted) / len(found.commits) if found.commits else None
    return CommitsView(
        since=since,
        commits=len(found.commits),
        all_commits=found.all_commits,
        reverted=len(found.reverted),
        reverted_share=round(share, 4) if share is not None else None,
        runs=len({commit.run for commit in found.commits}),
        weeks=tuple(
            WeekCounts(week, sum(row.commits for row in by), sum(row.reverted for row in by), tuple(by))
            for week, by in weeks.items()
        ),
    )
