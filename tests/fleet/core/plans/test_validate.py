"""What a plan must be: every rule finds its problem, at its place, and all problems are reported at once."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.base.ids import is_slug, slug
from fleet.core.plans.plan import WORKER_SUCCEEDED, Criterion, Plan, Subtask
from fleet.core.plans.revision import LONGEST_GOAL, LONGEST_TITLE, PlanContext, Problem, plan_problems
from tests.fleet.core.pretend import subtask
from tests.fleet.core.story import plan_of

KNOWN = PlanContext(workers=frozenset({"coder", "docs"}), checks=frozenset({"all_tests_pass"}))


def plan(*subtasks: Subtask) -> Plan:
    return Plan(goal="g", subtasks=subtasks)


def one(**fields: object) -> Plan:
    return plan(subtask("a").model_copy(update=fields))


def check(criterion: str = "it works", run: str | None = None) -> tuple[Criterion, ...]:
    return (Criterion(criterion=criterion, run=run),)


@pytest.mark.parametrize(
    ("broken", "path", "message"),
    [
        (Plan(), "subtasks", "is empty"),
        (plan_of("a", "a"), "subtasks", "2 subtasks have the id 'a'"),
        (one(id="a b"), "subtasks[0].id", "1 to 64 letters"),
        (one(id="planner"), "subtasks[0].id", "reserved for the planner"),
        (one(not_before=datetime(2026, 1, 31, 2)), "subtasks[0].not_before", "missing a time zone"),  # noqa: DTZ001
        (one(id="../a"), "subtasks[0].id", "1 to 64 letters"),
        (one(id="x" * 65), "subtasks[0].id", "1 to 64 letters"),
        (one(title=" "), "subtasks[0].title", "'a' has an empty title"),
        (one(title="x" * (LONGEST_TITLE + 1)), "subtasks[0].title", f"limit is {LONGEST_TITLE}"),
        (one(goal="\n"), "subtasks[0].goal", "'a' has an empty goal"),
        (one(goal="x" * (LONGEST_GOAL + 1)), "subtasks[0].goal", f"limit is {LONGEST_GOAL}"),
        (one(depends_on=("a",)), "subtasks[0].depends_on[0]", "'a' depends on itself"),
        (plan_of("schema", "api needs shema"), "subtasks[1].depends_on[0]", "did you mean 'schema'?"),
        (plan_of("a needs b", "b needs a"), "subtasks", "in a cycle: a → b → a"),
        (one(touches=("src/**", "/etc")), "subtasks[0].touches[1]", "is absolute"),
        (one(touches=("../x",)), "subtasks[0].touches[0]", "leaves the repository"),
        (one(context=("a/.git/config",)), "subtasks[0].context[0]", "belongs to git"),
        (one(acceptance=()), "subtasks[0].acceptance", "'a' has no acceptance criterion"),
        (one(acceptance=check(run=" ")), "subtasks[0].acceptance[0].run", "is not a command"),
        (one(acceptance=check(run="a\0b")), "subtasks[0].acceptance[0].run", "is not a command"),
        (one(acceptance=check(" ")), "subtasks[0].acceptance[0]", "neither a command"),
        (
            one(acceptance=check("tests_pass")),
            "subtasks[0].acceptance[0].run",
            "[checks.named] does not define 'tests_pass'",
        ),
        (one(worker="codr"), "subtasks[0].worker", "did you mean 'coder'?"),
        (one(worker="k8s-deployer"), "subtasks[0].worker", "known workers: coder, docs"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_each_rule_finds_its_problem_at_its_place(broken: Plan, path: str, message: str) -> None:
    (problem,) = plan_problems(broken, KNOWN)
    assert problem.path == path
    assert message in problem.message


def test_one_command_leaves_its_results_in_one_place() -> None:
    first = Criterion(criterion="unit", run="make test", tests="junit:a.xml")
    other = Criterion(criterion="all", run="make test", tests="junit:b.xml")
    broken = plan(
        *(subtask(name).model_copy(update={"acceptance": (each,)}) for name, each in (("a", first), ("b", other)))
    )
    (problem,) = plan_problems(broken, KNOWN)
    assert problem.path == "subtasks[1].acceptance[0].tests"
    assert "differs from the results file of 'make test' elsewhere in the plan: junit:a.xml" in problem.message


def test_all_problems_are_reported_at_once() -> None:
    broken = plan(
        subtask("a", "missing").model_copy(update={"goal": "", "acceptance": (), "touches": ("/x",)}),
        subtask("b", "c"),
        subtask("c", "b").model_copy(update={"worker": "missing"}),
    )
    assert [problem.path for problem in plan_problems(broken, KNOWN)] == [
        "subtasks[0].goal",
        "subtasks[0].depends_on[0]",
        "subtasks[0].touches[0]",
        "subtasks[0].acceptance",
        "subtasks[2].worker",
        "subtasks",
    ]


@pytest.mark.parametrize("criterion", ["all_tests_pass", WORKER_SUCCEEDED])
def test_a_named_check_that_exists_needs_no_command(criterion: str) -> None:
    assert plan_problems(one(acceptance=check(criterion)), KNOWN) == ()


def test_unknown_workers_and_checks_are_accepted_while_none_are_known() -> None:
    unknown = one(worker="k8s-deployer", acceptance=check("anything"))
    assert plan_problems(unknown, PlanContext()) == ()


def test_a_problem_reads_as_its_path_and_its_message() -> None:
    assert str(Problem("subtasks", "is empty")) == "subtasks: is empty"
    assert str(Problem("", "a plan is a table")) == "a plan is a table"


@pytest.mark.parametrize("text", ["a", "A-1", "step-1", "a.b_c", "x" * 64])
def test_a_slug_is_safe_as_a_ref_a_file_and_an_argument(text: str) -> None:
    assert is_slug(text)


@pytest.mark.parametrize(
    "text", ["", "-a", ".a", "a.", "a..b", "a.lock", "a/b", "a b", "a\n", "ä", "$(x)", "a;b", "x" * 65, "@{u}"]
)
def test_what_could_mean_something_else_is_not_a_slug(text: str) -> None:
    assert not is_slug(text)


@given(st.text())
def test_the_slug_of_any_title_is_one(title: str) -> None:
    assert is_slug(slug(title))
    assert len(slug(title)) <= 24
