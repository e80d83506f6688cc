"""Commits of a result on top of a branch that has moved: each with its own change, whatever came before it."""

import pytest

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import Member
from tests.worktrees.conftest import Bench, git, sign
from worktrees.store.replay import RelandingIntegrator, Replay, commits_above, put_candidate


@pytest.fixture
async def result(bench: Bench) -> tuple[Sha, Sha]:
    """Two commits, one on the other, that change the same file."""
    first = await bench.change("one", {"a.txt": "one\n\n\n\n\nb\n"})
    second = await bench.change("two", {"a.txt": "one\n\n\n\n\ntwo\n"}, base=first.commit)
    return first.commit, second.commit


async def test_a_later_commit_brings_nothing_of_an_earlier_one(bench: Bench, result: tuple[Sha, Sha]) -> None:
    """Merged with what both have in common, the second commit would conflict where only the first one does."""
    integrator = bench.worktrees.integrator
    ours = await bench.change("ours", {"a.txt": "other\n\n\n\n\nb\n"})
    candidates = frozenset(result)
    relanding = RelandingIntegrator(integrator, candidates)
    members = [Member(subtask=name, attempt=1, commit=commit) for name, commit in zip("ab", result, strict=True)]
    merged = await relanding.merge(ours.commit, members)
    assert [(member.subtask, failure.kind) for member, failure in merged.conflicts] == [("a", "conflict")]
    assert [member.subtask for member in merged.landed] == ["b"]
    assert git(bench.worktrees.store.git_dir, "show", f"{merged.tip}:a.txt") == "other\n\n\n\n\ntwo"
    elsewhere = await RelandingIntegrator(integrator, frozenset()).merge(ours.commit, members)
    assert [member.subtask for member, _ in elsewhere.conflicts] == ["a", "b"]


async def test_what_the_branch_has_already_lands_as_nothing_and_is_left_out_of_the_line(
    bench: Bench, result: tuple[Sha, Sha]
) -> None:
    integrator = bench.worktrees.integrator
    first, second = result
    ours = await bench.change("ours", {"a.txt": "one\n\n\n\n\nb\n", "mine.txt": "x\n"})
    replay = Replay(integrator)
    tip = await replay.merge(ours.commit, first)
    assert isinstance(tip, str)
    last = await replay.merge(tip, second)
    assert isinstance(last, str)
    assert await commits_above(integrator, ours.commit, last) == [tip, last]
    line = await replay.line(ours.commit, [(first, tip), (second, last)])
    assert [source for source, _ in line.pairs] == [second]
    assert git(bench.worktrees.store.git_dir, "rev-parse", f"{line.tip}~1") == ours.commit


async def test_a_candidate_has_the_change_and_the_author_of_a_commit_and_names_the_run_that_lands_it(
    bench: Bench, result: tuple[Sha, Sha]
) -> None:
    signature = sign("two", title="Again", body="As before.")
    candidate = await put_candidate(bench.worktrees.integrator, result[1], signature)
    store = bench.worktrees.store.git_dir
    assert git(store, "rev-parse", f"{candidate}^", f"{candidate}^{{tree}}") == git(
        store, "rev-parse", result[0], f"{result[1]}^{{tree}}"
    )
    assert (
        git(store, "log", "-1", "--format=%s|%an", candidate)
        == f"Again|{git(store, 'log', '-1', '--format=%an', result[1])}"
    )
