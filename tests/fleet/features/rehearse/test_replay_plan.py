"""Plans that replay history: what builds on what, what may run side by side, and what each subtask may change."""

from hypothesis import given
from hypothesis import strategies as st

from fleet.core.base.ids import Sha
from fleet.features.rehearse.replay_plan import MOST_TOUCHES, PastCommit, commit_of, dependencies, replay_plan

PATHS = st.sampled_from(["a", "a/b", "a/b/c", "d", "d/e", "f", ".gitignore", "d/.gitattributes"])


def past(message: str, *paths: str) -> PastCommit:
    return PastCommit(Sha("c" * 40), message, paths)


def test_a_commit_builds_on_the_latest_one_that_changed_one_of_its_paths() -> None:
    assert dependencies([["a"], ["b"], ["a"], ["a", "b"], ["c"]]) == [set(), set(), {0}, {1, 2}, set()]


def test_a_file_and_a_folder_of_one_name_meet() -> None:
    assert dependencies([["a/b"], ["a"], ["a/b/c"]]) == [set(), {0}, {0, 1}]


def test_what_comes_after_a_change_of_git_s_rules_builds_on_it() -> None:
    assert dependencies([["a"], ["x/.gitattributes"], ["b"]]) == [set(), set(), {1}]


@given(st.lists(st.lists(PATHS, min_size=1, max_size=3, unique=True), max_size=8))
def test_two_commits_that_meet_are_always_in_a_chain(changes: list[list[str]]) -> None:
    needs = dependencies(changes)
    below = [frozenset[int]()] * len(changes)
    for number, direct in enumerate(needs):
        assert all(need < number for need in direct)
        below[number] = direct.union(*(below[need] for need in direct))
    for later, paths in enumerate(changes):
        for earlier in range(later):
            meets = any(
                path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")
                for path in paths
                for other in changes[earlier]
            )
            assert not meets or earlier in below[later]


def test_each_commit_that_changes_something_is_a_subtask() -> None:
    commits = [past("One\n\nmore", "a.txt"), past("nothing"), past("", "Makefile")]
    plan = replay_plan(commits, protected=("Makefile",), goal="replay")
    assert [(spec.title, spec.touches) for spec in plan.subtasks] == [
        ("One", ("a.txt",)),
        ("commit cccccccccccc", ("Makefile",)),
    ]
    assert [commit_of(spec) for spec in plan.subtasks] == ["c" * 40, "c" * 40]


def test_a_title_is_one_printable_line() -> None:
    [spec] = replay_plan([past("\x1b[31mred\ttext\u202e\nbody\x07", "a")], protected=(), goal="").subtasks
    assert (spec.title, spec.goal) == ("[31mred text", "[31mred text \nbody")


def test_a_large_commit_may_change_any_file_and_names_the_protected_ones() -> None:
    paths = [f"f{number}" for number in range(MOST_TOUCHES)]
    [spec] = replay_plan([past("large", *paths, "conftest.py")], protected=("**/conftest.py",), goal="").subtasks
    assert spec.touches == ("**", "conftest.py")


def test_paths_that_no_plan_can_name_are_left_out() -> None:
    [spec] = replay_plan([past("odd", "ok", "a\\b", "n\nl", "\udcff")], protected=(), goal="").subtasks
    assert spec.touches == ("ok",)
