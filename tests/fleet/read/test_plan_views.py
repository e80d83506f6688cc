"""Plans as people and scripts read them: the difference between two versions, and parameters."""

from fleet.core.plans.parameters import Parameter
from fleet.core.plans.plan import Criterion, Plan
from fleet.read.plan_views import parameter_view, plan_diff, version_diffs
from tests.fleet.core.pretend import subtask
from tests.fleet.core.story import Story, plan_of

BEFORE = plan_of("schema", "api needs schema")


def with_subtask(plan: Plan, id_: str, **fields: object) -> Plan:
    changed = (subtask.model_copy(update=fields) if subtask.id == id_ else subtask for subtask in plan.subtasks)
    return plan.model_copy(update={"subtasks": tuple(changed)})


def test_the_same_plan_differs_in_nothing() -> None:
    assert plan_diff(BEFORE, BEFORE) == ()


def test_subtasks_that_came_and_went_are_one_line_each() -> None:
    assert plan_diff(BEFORE, plan_of("schema", "web")) == ("+ web: Build web", "- api: Build api")


def test_each_changed_field_has_its_old_and_its_new_value() -> None:
    after = with_subtask(BEFORE, "api", title="Serve it", depends_on=(), touches=("api/**", "web/**"))
    assert plan_diff(BEFORE, after) == (
        "~ api title: Build api → Serve it",
        "~ api depends_on: schema → (nothing)",
        "~ api touches: (nothing) → api/**, web/**",
    )


def test_acceptance_is_shown_as_commands_and_names_of_checks() -> None:
    after = with_subtask(BEFORE, "api", acceptance=(Criterion(criterion="all_tests_pass"),))
    assert plan_diff(BEFORE, after) == ("~ api acceptance: check api → all_tests_pass",)


def test_the_head_of_the_plan_is_compared_too() -> None:
    after = BEFORE.model_copy(update={"goal": "another", "risk_level": "high"})
    assert plan_diff(BEFORE, after) == ("~ goal: the epic → another", "~ risk_level: low → high")


def test_a_long_or_broken_value_stays_one_short_line() -> None:
    (line,) = plan_diff(BEFORE, with_subtask(BEFORE, "api", goal="word\n" * 1000))
    assert "\n" not in line
    assert len(line) < 250
    assert line.endswith("…")


def test_versions_are_compared_one_by_one_with_who_made_them_and_why() -> None:
    story = Story()
    story.planner_answers(assessment="first steps", add=[subtask("a")])
    story.attempt_fails("a")
    story.planner_answers(assessment="too large", split=[{"id": "a", "why": "x", "into": [subtask("b")]}])
    first, second = version_diffs(story.state.versions, 0, 2)
    assert (first.why, first.changes) == ("first steps", ("+ a: Build a",))
    assert (second.by, second.why, second.changes) == ("planner", "too large", ("+ b: Build b",))
    assert [version.version for version in version_diffs(story.state.versions, 1, 9)] == [2]


def test_a_parameter_without_a_default_is_required() -> None:
    version = parameter_view("version", Parameter(help="what to deploy"))
    place = parameter_view("place", Parameter(type="choice", choices=("here", "there"), default="here"))
    assert (version.required, version.type, version.help) == (True, "string", "what to deploy")
    assert (place.required, place.default, place.choices) == (False, "here", ("here", "there"))
