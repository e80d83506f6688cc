"""Which commits are the fleet's, each counted once, and which of them are reverted today."""

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.features.audit.attribution import Attributed, FleetCommits, Revert, commits_view, fleet_commits

WEEK = 7 * 24 * 3600.0
A, B, C, MERGE = (Sha(letter * 40) for letter in "abcd")


def commit(sha: Sha, subtask: str = "api", *, at: float = 0.0, written_at: float = 0.0, model: str = "m") -> Attributed:
    return Attributed(
        sha, at, written_at, run=RunId("r"), subtask=SubtaskId(subtask), attempt=1, worker="coder", model=model
    )


def revert(sha: Sha, *named: str) -> Revert:
    return Revert(sha, "Revert it\n\n" + "\n".join(f"This reverts commit {name}." for name in named))


def test_a_commit_that_was_picked_counts_once_where_it_came_first() -> None:
    first, again = commit(A, at=1.0), commit(B, at=2.0)
    assert fleet_commits([again, first], [], {}, 5).commits == (first,)


def test_another_attempt_at_the_same_subtask_is_another_commit() -> None:
    assert len(fleet_commits([commit(A), commit(B, written_at=9.0)], [], {}, 2).commits) == 2


def test_a_revert_takes_back_the_commits_it_names() -> None:
    counted = fleet_commits([commit(A), commit(B, "docs")], [revert(C, A)], {}, 3)
    assert counted.reverted == {A}


def test_a_revert_of_a_picked_commit_takes_back_the_one_that_counts() -> None:
    counted = fleet_commits([commit(A, at=1.0), commit(B, at=2.0)], [revert(C, B)], {}, 3)
    assert counted.reverted == {A}


def test_a_revert_that_is_reverted_takes_nothing_back() -> None:
    newest = revert(Sha("e" * 40), C)
    assert fleet_commits([commit(A)], [newest, revert(C, A)], {}, 3).reverted == set()


def test_a_revert_of_a_merge_takes_back_what_it_brought() -> None:
    counted = fleet_commits([commit(A), commit(B, "docs")], [revert(C, MERGE)], {MERGE: (A, B)}, 4)
    assert counted.reverted == {A, B}


def test_commits_are_counted_by_week_model_and_worker() -> None:
    commits = [commit(A), commit(B, "docs", at=WEEK), commit(C, "ui", at=WEEK, model="n")]
    view = commits_view(fleet_commits(commits, [revert(Sha("e" * 40), B)], {}, 9))
    assert (view.commits, view.all_commits, view.reverted, view.reverted_share, view.runs) == (3, 9, 1, 0.3333, 1)
    assert [(week.week, week.commits, week.reverted) for week in view.weeks] == [("1970-W01", 1, 0), ("1970-W02", 2, 1)]
    assert [(by.model, by.commits, by.reverted) for by in view.weeks[1].by] == [("m", 1, 1), ("n", 1, 0)]


def test_without_commits_the_share_is_unknown() -> None:
    assert commits_view(FleetCommits((), frozenset(), 0)).reverted_share is None
