"""The grade of a plan, before anything is spent on it."""

import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.lint import Grade, always_passes, check_problem, grade, grade_plan, grade_revision
from fleet.core.plans.plan import PLANNER, Criterion, Estimate, Plan, Subtask
from fleet.core.plans.revision import Revision, Split, apply
from tests.fleet.core.pretend import subtask


def check(run: str, *, fails_before: bool = True) -> Criterion:
    return Criterion(criterion="it works", run=run, fails_before=fails_before)


def here(program: str) -> bool:
    return program in {"pytest", "grep", "python3", "test", "make"}


def graded(*subtasks: Subtask, old: tuple[Subtask, ...] = ()) -> Grade:
    about = {one.id: f"add[{index}]" for index, one in enumerate(subtasks)}
    return grade(Plan(subtasks=(*old, *subtasks)), about=about, open_=[one.id for one in old], runs=here)


def made(id_: str, *needs: str, **fields: object) -> Subtask:
    given = {"touches": (f"{id_}.py",), "acceptance": (check(f"pytest test_{id_}.py"),), **fields}
    return subtask(id_, *needs).model_copy(update=given)


@pytest.mark.parametrize(
    "run",
    [
        *("true", ":", "echo done", "test -d .", "[ -d . ]", "exit 0", "pytest || true", "grep x y; echo ok", "ls"),
        *("true && echo yes", "make | printf x", "A=1 true", "echo hi > /dev/null", "pytest\necho finished"),
    ],
)
def test_a_check_that_passes_whatever_was_done_is_found_by_its_words(run: str) -> None:
    assert always_passes(run)
    assert "always passes" in (check_problem(check(run)) or "")
    assert check_problem(check(run, fails_before=False)) is None


@pytest.mark.parametrize(
    "run",
    [
        *(
            "pytest -q tests",
            "test -f a.py",
            "true && pytest",
            "! true",
            "grep -q x y || exit 1",
            "set -e; pytest; echo ok",
        ),
        *(
            "if grep x y; then true; fi",
            "(true)",
            "echo x | grep -q y",
            "$RUNNER && true",
            "cat <<E\ntrue\nE",
            "echo 'a",
            "",
        ),
        *("python3 -c 'import a\nassert a'", "test -d ./src", "`true`", "bash -c true", "{ true; }", "ls src"),
    ],
)
def test_a_check_that_may_fail_is_left_alone(run: str) -> None:
    assert not always_passes(run)


@pytest.mark.parametrize("run", ["false", "exit 1"])
def test_a_check_that_can_not_pass_is_an_error(run: str) -> None:
    assert "can never pass" in (check_problem(check(run)) or "")


@pytest.mark.parametrize(
    ("run", "missing"),
    [
        ("jest --ci", "jest"),
        ("cd src && ninja test", "ninja"),
        ("pytest && ./scripts/check && bin/x", None),
        ("X=1 pytest > out", None),
        ("export A=1; pytest", None),
        ("cat <<E\nnothing here\nE", None),
        ("for a in b; do c; done", None),
    ],
)
def test_a_check_whose_program_is_not_there_is_an_error(run: str, missing: str | None) -> None:
    said = check_problem(check(run), here)
    assert said == (f"program {missing!r} is not available to checks" if missing else None)
    assert check_problem(check(run), None) is None


def test_a_sound_plan_has_nothing_to_say() -> None:
    assert graded(made("a"), made("b", "a"), made("c")) == Grade()


def test_an_error_names_its_place_in_the_revision() -> None:
    [problem] = graded(made("a"), made("b", acceptance=(check("pytest"), check("true")))).errors
    assert problem.path == "add[1].acceptance[1].run"


def test_what_stood_before_is_not_graded_again() -> None:
    assert graded(made("b"), old=(made("a", acceptance=(check("true"),)),)) == Grade()


def test_two_that_change_one_file_at_the_same_time_are_named_and_an_order_settles_it() -> None:
    one, two = made("a", touches=("src/x.py",)), made("b", touches=("src/**",))
    assert graded(one, two).warnings == (
        "a and b may run at the same time and both change src/x.py. Order them, or assign it to one",
    )
    between = made("m", "a")
    after = made("b", "m", touches=("src/**",))
    assert graded(one, between, after) == Grade()
    assert len(graded(two, old=(one,)).warnings) == 1


def test_a_file_that_many_change_is_hot_however_they_are_ordered() -> None:
    chain = [made("s0", touches=("app.py",))]
    chain += [made(f"s{n}", f"s{n - 1}", touches=("app.py", f"{n}.py")) for n in range(1, 8)]
    [said] = graded(*chain).warnings
    assert said.startswith("8 subtasks change app.py (s0, s1, s2, s3, s4, s5 and 2 more)")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"acceptance": (check("pytest", fails_before=False),)}, "only guards"),
        ({"acceptance": (check("pytest"), check("true", fails_before=False))}, "a guard that always passes"),
        ({"estimate": Estimate(lines=900)}, "too large"),
        ({"touches": ("**",)}, "too large"),
        ({"goal": "x" * 7000}, "too large"),
        ({"goal": "Ship {set:version}."}, "an undeclared placeholder"),
        ({"goal": "Do it as discussed."}, "its worker can't see"),
        ({"goal": "Use the codec of src/lib/codec.py."}, "the goal names src/lib/codec.py, which"),
    ],
)
def test_what_makes_a_poor_subtask_is_a_warning(fields: dict[str, object], said: str) -> None:
    grade = graded(made("a", **fields))
    assert grade.errors == ()
    assert len(grade.warnings) == 1
    assert said in grade.warnings[0]


def test_a_subtask_of_a_line_is_too_fine_unless_it_is_the_only_one() -> None:
    fine = made("a", estimate=Estimate(lines=1))
    assert graded(fine) == Grade()
    assert graded(fine, made("b")).warnings == ("a: too small. Merge it with a related subtask",)


def test_the_parts_of_a_split_are_not_held_against_what_they_replace() -> None:
    whole, beside = made("a", touches=("src/**",)), made("b", touches=("lib/x.py",))
    parts = (made("a1", touches=("src/x.py",)), made("a2", touches=("src/y.py",)))
    revision = Revision(assessment="two", split=(Split(id="a", why="two", into=parts),))
    after = apply(Plan(subtasks=(whole, beside)), revision)
    assert grade_revision(revision, after, [SubtaskId("a"), SubtaskId("b")]) == Grade()
    assert grade_plan(after, without=[SubtaskId("a")]) == Grade()
    assert grade_plan(after).warnings != ()


def test_a_step_of_a_program_shows_by_its_own_end_that_it_was_done() -> None:
    steps = Plan(subtasks=(made("a", worker="deployer", acceptance=(check("pytest", fails_before=False),)),))
    assert grade_plan(steps, steps={"deployer"}) == Grade()
    assert "only guards" in grade_plan(steps).warnings[0]


def test_an_area_may_be_large() -> None:
    assert graded(made("a", worker=PLANNER, estimate=Estimate(lines=9000), goal="x" * 7000)) == Grade()


def test_a_large_plan_is_graded_all_the_same() -> None:
    crowd = [made(f"s{n}", *([f"s{n - 1}"] if n % 2 else []), touches=(f"p{n}/**", "shared/x.py")) for n in range(500)]
    assert graded(*crowd).warnings[0].startswith("500 subtasks change shared/x.py")
