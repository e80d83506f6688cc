"""Statistics about commits made by fleet in a repository: by week, model and worker, with later reverts.

Trailers are untrusted, because anyone can write them. Their values are short, one-line texts.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dashboards.text.formats import count, counted
from dashboards.text.safe import safe
from dashboards.text.tables import NAME, columns
from fleet.core.base.ids import RunId, Sha, SubtaskId, is_slug
from worktrees.git import reader
from worktrees.git.object_format import (
    ASSISTED,
    RUN,
    TASK,
    WORKER,
    attempt_number,
    one_line,
    parse_commit,
    parse_signature,
    parse_trailers,
)
from worktrees.git.program import text
from worktrees.git.reader import read
from worktrees.target.target import locate

UNKNOWN = "unknown"
LONGEST_VALUE = 100  # characters of an untrusted trailer
REVERTS = "^This reverts commit [0-9a-f]"
MOST_NAMED = 1000  # commits that one message may revert
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{40}|[0-9a-f]{64})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Attributed:
    """A commit made by fleet, according to its trailers."""

    commit: Sha
    at: float
    """The commit time."""
    written_at: float
    """The author time, which cherry-picks and rebases keep."""
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
    """A commit that reverts other commits, according to its message."""

    commit: Sha
    message: str

    @property
    def named(self) -> tuple[Sha, ...]:
        return tuple(_REVERTS.findall(self.message)[:MOST_NAMED])


@dataclass(frozen=True, slots=True)
class FleetCommits:
    """The commits made by fleet in a repository, each counted once."""

    commits: Sequence[Attributed]
    reverted: frozenset[Sha]
    """The commits that are currently reverted."""
    all_commits: int
    """The number of all commits, by anyone."""


def fleet_commits(
    found: Iterable[Attributed],
    reverts: Sequence[Revert],
    merged_by: Mapping[Sha, Collection[Sha]],
    all_commits: int,
) -> FleetCommits:
    """Count each commit once. Of a commit and its cherry-picked or rebased copies, only the first counts.

    `reverts` are ordered newest first. `merged_by` has the commits that came with each reverted merge.
    """
    reverted_ids = _reverted(reverts, merged_by)
    first: dict[tuple[RunId, SubtaskId, int, float], Attributed] = {}
    reverted: set[Sha] = set()
    for commit in sorted(found, key=lambda commit: (commit.at, commit.commit)):
        earliest = first.setdefault((commit.run, commit.subtask, commit.attempt, commit.written_at), commit)
        if commit.commit in reverted_ids:
            reverted.add(earliest.commit)
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
    """Model named in the commits, or `unknown`."""
    worker: str
    """Worker kind named in the commits."""
    commits: int
    """Number of commits."""
    reverted: int
    """How many of them were reverted later."""


@dataclass(frozen=True, slots=True)
class WeekCounts:
    """Commits of one week."""

    week: str
    """The ISO week, in UTC: `2026-W47`."""
    commits: int
    """Number of commits made by fleet in this week."""
    reverted: int
    """How many of them were reverted later."""
    by: tuple[AuthorCounts, ...]
    """By model and worker."""


@dataclass(frozen=True, slots=True)
class CommitsView:
    """Statistics about commits made by fleet in a repository."""

    since: str | None
    """The requested start time; null for all commits."""
    commits: int
    """Number of commits made by fleet."""
    all_commits: int
    """The number of all commits, including those made by fleet."""
    reverted: int
    """The number of fleet's commits that were reverted later."""
    reverted_share: float | None
    """`reverted` divided by `commits`; null if there are no commits."""
    runs: int
    """The number of runs that made these commits."""
    weeks: tuple[WeekCounts, ...]
    """Numbers for each week, the earliest first."""


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


# ---- reading ---------------------------------------------------------------------------------------------------------


async def read_attribution(path: Path, *, since: float | None = None) -> FleetCommits:
    """Read fleet's commits on all branches of the repository at `path`, back to `since`. Raises `UsageError`."""
    git = await locate(path)
    ours = await read(git, partial(reader.matching_commits, pattern=f"^{RUN}: ", since=since))
    reverting = await read(git, partial(reader.matching_commits, pattern=REVERTS, since=since))
    reverts = [Revert(id_, text(parse_commit(content).message)) for id_, content in reverting]
    named = {id_ for revert in reverts for id_ in revert.named}
    merges = await read(git, partial(reader.merges_with, named=named))
    commits = (commit for id_, content in ours if (commit := _attributed(id_, content)) is not None)
    return fleet_commits(commits, reverts, merges, await read(git, partial(reader.count_commits, since=since)))


def _attributed(id_: Sha, content: bytes) -> Attributed | None:
    """Parse a commit; None if its trailers are not fleet's."""
    commit = parse_commit(content)
    author, written_at = parse_signature(commit.author)
    trailers = parse_trailers(text(commit.message))
    values = {name: one_line(value)[:LONGEST_VALUE] for name, value in trailers.items()}
    run, task, worker = (values.get(name, "") for name in (RUN, TASK, WORKER))
    attempt = attempt_number(values)
    if not (is_slug(run) and is_slug(task)) or attempt is None:
        return None
    return Attributed(
        commit=id_,
        at=parse_signature(commit.committer)[1],
        written_at=written_at,
        run=RunId(run),
        subtask=SubtaskId(task),
        attempt=attempt,
        worker=worker if is_slug(worker) else _worker_of(author),
        model=values.get(ASSISTED) or UNKNOWN,
    )


def _worker_of(author: str) -> str:
    """Return the worker from the author name, `fleet coder (model)`, for commits from before the trailer existed."""
    words = author.split()
    return words[1] if len(words) > 1 and words[0] == "fleet" and is_slug(words[1]) else UNKNOWN


# ---- text ------------------------------------------------------------------------------------------------------------


def commits_lines(view: CommitsView) -> list[str]:
    """Format the statistics by week. Model and worker names are taken from the commits."""
    if not view.commits:
        return [f"no commit by fleet found ({count(view.all_commits)} commits without the trailer Fleet-Run)"]
    rows: list[tuple[str, ...]] = [("WEEK", "COMMITS", "REVERTED", "MODEL", "WORKER")]
    for week in view.weeks:
        rows.append((week.week, str(week.commits), _share(week.reverted, week.commits), "", ""))
        for by in week.by:
            model, worker = safe(by.model, limit=NAME), safe(by.worker, limit=NAME)
            rows.append(("", str(by.commits), _share(by.reverted, by.commits), model, worker))
    commits = f"{count(view.commits)} of {count(view.all_commits)} commits were made by fleet"
    reverted = f"reverted later: {_share(view.reverted, view.commits)}"
    return [*columns(rows), "", f"{commits}, from {counted(view.runs, 'run')}; {reverted}"]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%} ({part} of {whole})" if part else "0"
