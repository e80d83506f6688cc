"""Plan files: the document as printed, the other spellings, and every mistake with its place."""

from typing import Any

import pytest

from fleet.core.plans.parameters import parse, read_plan
from fleet.core.plans.plan import Criterion, Estimate, Plan, Subtask, Written
from fleet.core.plans.revision import Ask, Drop, PlanContext, Problem, Retry, Revision, Split, SubtaskChange

DEPLOYMENT: dict[str, Any] = {
    "plan_id": "deploy-auth-service-v2.1.4",
    "goal": "Deploy authentication service update to production",
    "steps": [
        {
            "id": "step-1",
            "action": "run_tests",
            "worker": "test-runner",
            "parameters": {"test_suite": "full", "environment": "staging"},
            "success_criteria": "all_tests_pass",
            "failure_action": "abort_deployment",
        },
        {
            "id": "step-2",
            "action": "backup_database",
            "worker": "db-manager",
            "parameters": {"database": "auth_prod", "backup_type": "full"},
            "depends_on": ["step-1"],
        },
        {
            "id": "step-3",
            "action": "deploy_service",
            "worker": "k8s-deployer",
            "parameters": {"service": "auth-service", "version": "v2.1.4", "strategy": "blue_green"},
            "depends_on": ["step-2"],
        },
    ],
    "rollback_plan": "rollback-auth-service-v2.1.3",
    "estimated_duration": "15 minutes",
    "risk_level": "medium",
}
SUBTASK: dict[str, Any] = {
    "id": "a",
    "title": "Build a",
    "goal": "Build it.",
    "acceptance": [{"criterion": "works", "run": "true"}],
}


def good(data: object, known: PlanContext | None = None) -> Plan:
    plan = read_plan(data, known)
    assert isinstance(plan, Plan), plan
    return plan


def bad(data: object, known: PlanContext | None = None) -> dict[str, str]:
    problems = read_plan(data, known)
    assert not isinstance(problems, Plan)
    return {problem.path: problem.message for problem in problems}


def test_the_printed_deployment_plan_loads_unchanged() -> None:
    known = PlanContext(
        workers=frozenset({"test-runner", "db-manager", "k8s-deployer"}), checks=frozenset({"all_tests_pass"})
    )
    plan = good(DEPLOYMENT, known)
    assert (plan.plan_id, plan.ids) == ("deploy-auth-service-v2.1.4", ("step-1", "step-2", "step-3"))
    assert plan.goal == "Deploy authentication service update to production"
    assert plan.rollback_plan == "rollback-auth-service-v2.1.3"
    assert (plan.risk_level, plan.estimated_duration) == ("medium", "15 minutes")
    first, second, third = plan.subtasks
    assert (first.title, first.goal, first.failure_action) == ("run_tests", "run_tests", "abort")
    assert [(c.criterion, c.run, c.fails_before) for c in first.acceptance] == [("all_tests_pass", None, False)]
    assert [c.criterion for c in second.acceptance] == ["worker_succeeded"]
    assert third.parameters == {"service": "auth-service", "version": "v2.1.4", "strategy": "blue_green"}
    assert (third.worker, third.depends_on) == ("k8s-deployer", ("step-2",))


def test_a_plan_that_was_written_reads_back_as_itself() -> None:
    plan = good(DEPLOYMENT)
    assert good(plan.model_dump(mode="json")) == plan


def test_a_step_may_say_more_than_a_step_must() -> None:
    step = {**SUBTASK, "action": "deploy", "failure_action": "abort_run"}
    del step["title"]
    (subtask,) = good({"steps": [step]}).subtasks
    assert (subtask.title, subtask.goal, subtask.failure_action) == ("deploy", "Build it.", "abort")
    assert subtask.acceptance[0].run == "true"


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        ([], "", "a plan is a table"),
        ("text", "", "a plan is a table"),
        ({"steps": [], "subtasks": []}, "steps", "Keep one"),
        ({"subtasks": "a, b"}, "subtasks", "is not a list"),
        ({"subtasks": []}, "subtasks", "is empty"),
        ({"subtasks": [SUBTASK], "goals": "g"}, "goals", "is not a field here"),
        ({"subtasks": [SUBTASK], "risk_level": "huge"}, "risk_level", "input should be"),
        ({"subtasks": [SUBTASK], "version": -1}, "version", "greater than or equal to 0"),
        ({"subtasks": ["a"]}, "subtasks[0]", "input should be a valid dictionary"),
        ({"subtasks": [{**SUBTASK, "needs": []}]}, "subtasks[0].needs", "is not a field here"),
        ({"subtasks": [{**SUBTASK, "failure_action": "pray"}]}, "subtasks[0].failure_action", "input should be"),
        ({"subtasks": [{**SUBTASK, "id": 7}]}, "subtasks[0].id", "valid string"),
        (
            {"subtasks": [{**SUBTASK, "acceptance": [{"criterion": "c", "run": "true", "timeout_s": 0}]}]},
            "subtasks[0].acceptance[0].timeout_s",
            "greater than 0",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place(data: object, path: str, message: str) -> None:
    assert message in bad(data)[path]


def test_others_may_depend_on_a_subtask_that_can_not_be_read() -> None:
    unreadable = {"id": "a", "title": "Build a"}
    problems = bad({"subtasks": [unreadable, {**SUBTASK, "id": "b", "depends_on": ["a", "missing"]}]})
    assert problems == {
        "subtasks[0].goal": "is missing",
        "subtasks[0].acceptance": "is missing",
        "subtasks[1].depends_on[1]": "unknown subtask 'missing'",
    }


def test_mistakes_in_the_head_and_in_subtasks_are_reported_together() -> None:
    problems = bad({"risk_level": 3, "subtasks": [{**SUBTASK, "goal": ""}, {"id": "b"}]})
    assert {"risk_level", "subtasks[0].goal", "subtasks[1].title", "subtasks[1].acceptance"} <= set(problems)


def test_a_problem_is_reported_once() -> None:
    problems = read_plan({"subtasks": [SUBTASK, SUBTASK]})
    assert problems == (Problem("subtasks", "2 subtasks have the id 'a'. Ids must be unique"),)


@pytest.mark.parametrize("said", [{}, {"version": 0}])
def test_a_plan_without_a_number_is_the_first_version(said: dict[str, int]) -> None:
    plan = read_plan({**DEPLOYMENT, **said})
    assert isinstance(plan, Plan)
    assert plan.version == 1
    again = read_plan({**DEPLOYMENT, "version": 7})
    assert isinstance(again, Plan)
    assert again.version == 7


def everything_written() -> list[tuple[type[Written], str]]:
    kinds = (Criterion, Estimate, Subtask, Plan, SubtaskChange, Split, Retry, Drop, Ask, Revision)
    return [(kind, name) for kind in kinds for name, field in kind.model_fields.items() if not field.is_required()]


SMALLEST: dict[type[Written], dict[str, Any]] = {
    Criterion: {"criterion": "it works"},
    Subtask: {"id": "a", "title": "A", "goal": "Write a.", "acceptance": []},
    SubtaskChange: {"id": "a"},
    Split: {"id": "a", "why": "much", "into": [{"id": "b", "title": "B", "goal": "Write b.", "acceptance": []}]},
    Retry: {"id": "a"},
    Drop: {"id": "a", "why": "no"},
    Ask: {"question": "which?"},
    Revision: {"assessment": "so"},
}


@pytest.mark.parametrize(("kind", "name"), everything_written(), ids=lambda value: getattr(value, "__name__", value))
def test_a_field_that_is_null_is_one_that_was_left_out(kind: type[Written], name: str) -> None:
    """Models that write every field of a schema write null where they have nothing to say."""
    smallest = SMALLEST.get(kind, {})
    assert parse(kind, {**smallest, name: None}, at="") == parse(kind, smallest, at="") == kind.model_validate(smallest)


@pytest.mark.parametrize("kind", sorted(SMALLEST, key=str), ids=str)
def test_what_a_journal_recorded_is_read_as_it_was(kind: type[Written]) -> None:
    written = kind.model_validate(SMALLEST[kind])
    assert kind.model_validate_json(written.model_dump_json()) == written


def test_a_field_that_is_needed_may_not_be_null() -> None:
    assert parse(Retry, {"id": None}, at="retry[0]") == (Problem("retry[0].id", "input should be a valid string"),)


def test_free_form_values_stay_as_they_are() -> None:
    found = parse(Subtask, {**SMALLEST[Subtask], "parameters": {"x": None}}, at="")
    assert isinstance(found, Subtask)
    assert found.parameters == {"x": None}
