"""A run in numbers: what its criteria prove, what its touches allow, which of its subtasks may collide."""

from evaluation.score import allowed_files, score
from fleet.core.facts import facts as f
from fleet.core.plans.plan import Criterion, Subtask
from tests.fleet.core.story import Story

REAL, EMPTY = "python3 -m unittest tests.test_a", "test -f README.md"


def subtask(id_: str, *touches: str, run: str = REAL, needs: tuple[str, ...] = ()) -> Subtask:
    checks = (
        Criterion(criterion="It works.", run=run),
        Criterion(criterion="A guard.", run="true", fails_before=False),
    )
    return Subtask(id=id_, title=id_, goal=id_, acceptance=checks, touches=touches, depends_on=needs)


def planned(*subtasks: Subtask) -> Story:
    story = Story()
    story.planner_answers(add=subtasks)
    return story


def lands(story: Story, id_: str, *paths: str) -> None:
    report = f.Report(status="done", summary="did it")
    story.happens(
        f.AttemptCommitted(at=story.now, subtask=id_, number=1, commit=f"c-{id_}", paths=paths, report=report),
        f.AttemptVerified(at=story.now, subtask=id_, number=1, checks=()),
    )
    story.batch_lands()
    story.is_published()


def test_a_criterion_proves_something_if_it_fails_before_and_passes_on_the_known_solution() -> None:
    story = planned(subtask("a", "a.py"), subtask("b", "b.py", run=EMPTY), subtask("c", "c.py", run="false"))
    result = score(story.state, solved=False, fails={REAL, "false"}, passes={REAL, EMPTY}, files={"README.md"})
    assert (result.criteria, result.proving) == (3, 1), "guards don't count"


def test_touches_are_needed_as_far_as_the_landed_change_used_them() -> None:
    story = planned(subtask("a", "src/**"), subtask("b", "b.py", "tests/"))
    files = {"src/one.py", "src/two.py", "tests/test_b.py", "b.py", "README.md"}
    lands(story, "a", "src/one.py")
    result = score(story.state, solved=True, fails=(), passes=(), files=files)
    assert (result.landed, result.planned) == (1, 2)
    assert (result.needed, result.allowed) == (1, 2), "only those of what landed"


def test_what_the_planner_mended_later_is_not_to_its_credit() -> None:
    story = planned(subtask("a", "**", run=EMPTY))
    story.attempt_fails("a", "vacuous")
    story.planner_answers(revise=[{"id": "a", "touches": ["a.py"]}], retry=[{"id": "a", "guidance": "sharper"}])
    result = score(story.state, solved=True, fails=(), passes={EMPTY}, files={"a.py", "b.py"})
    assert (result.criteria, result.proving) == (1, 0)
    assert story.spec("a").touches == ("a.py",)


def test_subtasks_overlap_if_neither_waits_for_the_other_and_both_may_change_a_file() -> None:
    story = planned(
        subtask("a", "one.py"), subtask("b", "*.py"), subtask("c", "one.py", needs=("a",)), subtask("d", "new.py")
    )
    result = score(story.state, solved=False, fails=(), passes=(), files={"one.py"})
    assert result.pairs == 5, "all but a and c"
    assert result.overlapping == 2, "b with a and with c; d's file does not exist"


def test_an_exact_path_counts_even_where_it_never_exists() -> None:
    assert allowed_files(subtask("a", "new.py", "old.py", "docs/"), {"old.py", "docs/a.md"}) == {
        "new.py",
        "old.py",
        "docs/a.md",
    }


def test_dollars_rungs_and_ends_are_those_of_the_journal() -> None:
    story = planned(subtask("a", "a.py"))
    story.model_is_called("a", 2.5)
    lands(story, "a", "a.py")
    result = score(story.state, solved=True, fails=(), passes=(), files=())
    assert (result.dollars, result.planner_dollars, result.attempts) == (2.5, 0.0, 1)
    assert result.planner_calls == story.state.planning.calls
    assert sum(result.rungs.values()) == 1
