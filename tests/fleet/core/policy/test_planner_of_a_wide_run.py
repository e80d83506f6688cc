"""What a planner sees of a run of ten thousand subtasks: a state and a record that fit into a prompt."""

import json
from dataclasses import replace

from fleet.core.base.ids import QuestionId, Sha, SubtaskId
from fleet.core.base.vector import Vector
from fleet.core.facts import facts as f
from fleet.core.history.subtask_sets import put_subtask
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import PLANNER, Criterion, Plan, Subtask
from fleet.core.policy.planner_view import (
    ALL,
    OLD,
    PAGE,
    PlannerState,
    find_subtasks,
    planner_record,
    planner_state,
    subtask_report,
)
from fleet.core.state.state import Question, Reading, RunState
from fleet.core.state.subtasks import Attempt
from tests.fleet.core.pretend import subtask
from tests.fleet.core.story import Story

TOKENS, BYTES_OF_A_TOKEN = 20_000, 2.5  # JSON of English words has three to four
LONG = "This is what a worker writes about it, at some length, with names and with numbers. " * 20


def spec_of(number: int) -> Subtask:
    part = f"src/part{number % 30}"
    return Subtask(
        id=f"handle-case-{number}",
        title=f"Handle case {number} of the protocol and cover it with a test of its own",
        goal="Build it. " * 30,
        acceptance=(Criterion(criterion="it works", run=f"pytest -q tests/test_case_{number}.py"),),
        touches=(f"{part}/case_{number}.py", f"tests/test_case_{number}.py"),
        depends_on=(f"handle-case-{number - 100}",) if number >= 100 else (),
    )


def case(number: int) -> SubtaskId:
    return SubtaskId(f"handle-case-{number}")


def attempt(number: int = 1, **fields: object) -> Attempt:
    report = f.Report(status="done", summary=LONG, recommendations=(LONG,) * 8)
    made = Attempt(number, "coder", None, Sha("base"), "first", "", 0.0, ended_at=float(number), report=report)
    return replace(made, **fields)  # type: ignore[arg-type]


def wide(count: int = 10_000, closed: int = 9_900) -> RunState:
    """A run with so many subtasks, of which the first ones have landed."""
    state = Story(Policy(workers=1), Plan(goal="g", subtasks=tuple(map(spec_of, range(count))))).state
    for number in range(closed):
        landed = replace(
            state.subtasks[case(number)],
            attempts=(attempt(ended_at=float(number)),),
            landed=Sha(f"sha-{number}"),
        )
        state = put_subtask(state, landed)
    return state


def failing(state: RunState, *numbers: int) -> RunState:
    red = f.Failure(kind="check", summary=f"3 failed. {LONG}"[:200], evidence=LONG * 10)
    for number in numbers:
        four = tuple(attempt(n, failure=red) for n in range(1, 5))
        failed = replace(state.subtasks[case(number)], attempts=four, failure=red)
        state = put_subtask(state, failed)
    return state


def reading(state: RunState, *numbers: int) -> RunState:
    reports = Vector(map(case, numbers))
    return replace(state, planning=replace(state.planning, reading=Reading(reports=reports)))


def tokens(view: PlannerState) -> float:
    text = json.dumps(view, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode()) / BYTES_OF_A_TOKEN


def listed(view: PlannerState) -> set[str]:
    return {entry["id"] for entry in view["subtasks"]}


def names(*numbers: int) -> set[str]:
    return {f"handle-case-{number}" for number in numbers}


def test_ten_thousand_subtasks_of_which_a_hundred_are_open_fit_into_the_state() -> None:
    state = wide()
    view = planner_state(state, 0.0)
    assert tokens(view) <= TOKENS
    assert listed(view) == names(*range(9_900, 10_000))
    assert view["closed"]["count"] == 9_900
    groups = {group["area"]: group for group in view["closed"]["summary"]}
    assert set(groups) == {f"src/part{number}" for number in range(30)}
    assert all(group["merged"] == 330 for group in groups.values())
    assert "handle-case-9899 (Handle case 9899" in groups["src/part29"]["result"]


def test_it_fits_also_where_everything_that_is_open_has_failed_at_length_and_everything_else_was_reported() -> None:
    state = reading(failing(wide(), *range(9_900, 10_000)), *range(10_000))
    view = planner_state(state, 0.0)
    assert tokens(view) <= TOKENS
    assert listed(view) >= names(*range(9_900, 10_000))
    assert all(entry["failures"][0]["evidence"] for entry in view["subtasks"] if entry["status"] == "failed")
    assert set(view["reports_since_last_call"]) == listed(view)
    assert view["closed"]["count"] + len(listed(view)) == 10_000
    assert view["closed"]["reported_since_last_call"] == view["closed"]["count"]


def test_what_failed_has_as_much_of_its_evidence_in_a_long_run_as_in_a_short_one() -> None:
    [short] = [e for e in planner_state(failing(wide(20, 19), 19), 0.0)["subtasks"] if e["status"] == "failed"]
    [long] = [e for e in planner_state(failing(wide(), 9_950), 0.0)["subtasks"] if e["status"] == "failed"]
    assert len(long["failures"][-1]["evidence"]) == len(short["failures"][-1]["evidence"]) > 900


def test_what_was_reported_since_the_last_call_is_listed_with_its_result_although_it_is_closed() -> None:
    view = planner_state(reading(wide(), 17, 4_711), 0.0)
    assert listed(view) == names(17, 4_711, *range(9_900, 10_000))
    assert view["reports_since_last_call"] == ["handle-case-17", "handle-case-4711"]
    assert next(entry for entry in view["subtasks"] if entry["id"] == "handle-case-17")["result"]
    assert view["closed"]["count"] == 9_898


def test_up_to_two_hundred_all_are_listed() -> None:
    view = planner_state(wide(ALL, ALL - 5), 0.0)
    assert len(view["subtasks"]) == ALL
    assert "closed" not in view
    assert "closed" in planner_state(wide(ALL + 1, ALL - 5), 0.0)


def test_open_questions_are_told_in_full_and_old_answers_give_way() -> None:
    state = wide(300, 250)
    ids = [QuestionId(f"q{n}") for n in range(250)]
    asked = {id_: Question(id_, case(n), "how?", (), "", "planner", 0.0, answer=f"so {n}") for n, id_ in enumerate(ids)}
    last = QuestionId("open")
    asked[last] = replace(asked[ids[0]], id=last, about=case(299), answer=None)
    news = replace(state.planning, reading=Reading(answers=(ids[3],)))
    view = planner_state(replace(state, questions=asked, asked=(last,), planning=news), 0.0)
    assert [each["id"] for each in view["questions"]] == ["q3", *(f"q{n}" for n in range(230, 250)), "open"]


def test_closed_areas_are_told_with_their_synthesis_and_all_that_landed_inside() -> None:
    state = wide(250, 240)
    synthesis = f.Report(status="done", summary="tokens are signed with ed25519")
    for number in (0, 1):
        id_ = case(number)
        area = state.spec(id_).model_copy(update={"worker": PLANNER})
        state = replace(state, specs={**state.specs, id_: area})
    for number in range(2, 50):  # half of them in an area within the area
        inside = replace(state.subtasks[case(number)], area=case(number % 2))
        state = put_subtask(state, inside)
    nested = replace(state.subtasks[case(1)], area=case(0))
    outer = replace(state.subtasks[case(0)], attempts=(attempt(worker=PLANNER, report=synthesis),))
    state = put_subtask(put_subtask(state, nested), outer)
    members = {
        area: state.subtasks.set_of([s.id for s in state.subtasks.values() if s.area == area])
        for area in (None, case(0), case(1))
    }
    state = replace(
        state,
        areas=dict.fromkeys((case(0), case(1)), state.planning),
        subtasks=replace(state.subtasks, made_by=members),
    )
    view = planner_state(state, 0.0)
    assert "closed" in view
    group = next(group for group in view["closed"]["summary"] if group["area"] == "handle-case-0")
    assert (group["merged"], group["result"]) == (50, "tokens are signed with ed25519")
    assert sum(group["merged"] for group in view["closed"]["summary"]) == 240


def test_however_many_folders_there_are_the_summary_has_an_end() -> None:
    state = wide(2_000, 1_990)
    far = {id_: spec.model_copy(update={"touches": (f"p{id_}/a.py",)}) for id_, spec in state.specs.items()}
    summary = planner_state(replace(state, specs=far), 0.0)["closed"]["summary"]
    assert len(summary) == 41
    assert sum(group["merged"] for group in summary) == 1_990


# ---- the record ------------------------------------------------------------------------------------------------------


def landing(state: RunState, *numbers: int) -> RunState:
    for number in numbers:
        id_ = case(number)
        done = replace(state.subtasks[id_], attempts=(attempt(ended_at=float(number + 1)),), landed=Sha("x"))
        state = put_subtask(state, done)
    return state


def test_a_long_record_begins_alike_for_many_calls_and_has_an_end() -> None:
    state = wide(1_000, 0)
    before, changes, longest = planner_record(state), 0, 0
    record = before
    for first in range(0, 800, 20):
        state = landing(state, *range(first, first + 20))
        record = planner_record(state)
        assert [entry["landed"] for entry in record[-20:]] == [f"handle-case-{n}" for n in range(first, first + 20)]
        changes += record[: len(before)] != before
        longest, before = max(longest, len(str(record))), record
    assert 1 <= changes <= 14
    assert longest < 3.5 * PAGE
    assert record[0]["left_out"] == 1_800 - len(record) + 1 + OLD


def test_what_is_still_open_stays_in_the_record_when_what_was_planned_with_it_is_left_out() -> None:
    state = landing(wide(1_000, 0), *range(600))
    record = planner_record(state)
    planned = [entry["planned"] for entry in record if "planned" in entry]
    assert planned == [f"handle-case-{n}" for n in range(1_000 - OLD, 1_000)]
    assert planner_record(landing(state, 999))[: len(record)] == record
    dropped = put_subtask(state, replace(state.subtasks[case(999)], dropped="no longer needed"))
    assert "handle-case-999" not in [entry.get("planned") for entry in planner_record(dropped)]


def test_a_closed_subtask_can_be_found_by_words_and_read_in_full() -> None:
    state = wide(300, 250)
    assert [each["id"] for each in find_subtasks(state, "CASE 42 part12")] == ["handle-case-42"]
    assert find_subtasks(state, "handle")[0]["id"] == "handle-case-299"
    assert find_subtasks(state, "no-such-word") == []
    report = subtask_report(state, case(42))
    assert report is not None
    assert report["planned"]["touches"] == ["src/part12/case_42.py", "tests/test_case_42.py"]


def test_a_planner_finds_only_what_it_sees() -> None:
    story = Story()
    area = subtask("auth").model_copy(update={"worker": PLANNER})
    story.planner_answers(add=(area, subtask("docs")))
    assert [each["id"] for each in find_subtasks(story.state, "docs")] == ["docs"]
    assert find_subtasks(story.state, "docs", SubtaskId("auth")) == []
