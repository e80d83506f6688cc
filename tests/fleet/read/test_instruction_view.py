"""Which attempt reads an instruction, and when: what a person is told who gives one."""

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.requests import request_problem
from fleet.read.question_view import instruction_views, when_read
from tests.fleet.core.story import Story, plan_of

API = SubtaskId("api")


def given(subtask: str = "api", text: str = "use UTC", *, interrupt: bool = False) -> f.InstructionGiven:
    return f.InstructionGiven(at=1, subtask=subtask, text=text, by="ada", interrupt=interrupt)


def test_the_phase_of_the_attempt_decides_who_reads_it() -> None:
    story = Story(plan=plan_of("api", "docs needs api"))
    assert when_read(story.state, SubtaskId("docs")) == "attempt 1 will see it when it starts"
    assert when_read(story.state, API) == "attempt 1 will see it when it starts"
    story.worker_starts("api")
    assert when_read(story.state, API) == "attempt 1 will see it after its current tool calls"
    assert when_read(story.state, API, interrupt=True) == "attempt 1 will be interrupted and see it immediately"
    story.attempt_fails("api")
    assert when_read(story.state, API).startswith(
        "attempt 2 will see it when it starts. To start one, run `fleet retry api`"
    )


def test_finished_work_is_not_told_any_more() -> None:
    story = Story(plan=plan_of("api"))
    story.work_is_done("api")
    told = "attempt 1 has finished and is being tested, so attempt 2 will see it when it starts, if there is one"
    assert when_read(story.state, API) == told


def test_a_program_reads_nothing_while_it_runs() -> None:
    story = Story(Policy(programs=("coder",)), plan_of("api"))
    assert when_read(story.state, API) == "attempt 1 will see it when it starts"
    story.worker_starts("api")
    told = (
        "attempt 1 is a program and can't receive instructions, so "
        "attempt 2 will see it when it starts, if there is one"
    )
    assert when_read(story.state, API, interrupt=True) == told


def test_an_agent_with_turns_reads_it_between_two_of_them() -> None:
    story = Story(Policy(by_turns=("coder",)), plan_of("api"))
    assert when_read(story.state, API) == "attempt 1 will see it when it starts"
    story.worker_starts("api")
    assert when_read(story.state, API) == "attempt 1 will see it after its current turn"
    assert when_read(story.state, API, interrupt=True) == "attempt 1 will be interrupted and see it immediately"


def test_the_parts_of_a_split_subtask_are_told_instead() -> None:
    story = Story(plan=plan_of("api"))
    story.attempt_fails("api", "too_complex")
    parts = plan_of("one", "two").subtasks
    story.planner_answers(split=[{"id": "api", "why": "wide", "into": [part.model_dump() for part in parts]}])
    assert request_problem(story.state, given()) == "api was split. Send the instruction to one of its parts: one, two"


def test_an_instruction_names_the_attempts_that_read_it() -> None:
    story = Story(plan=plan_of("api"))
    story.worker_starts("api")
    story.happens(given(), f.InstructionRead(at=2, subtask="api", number=1, count=1), given(text="and French"))
    first, second = instruction_views(story.of("api"))
    assert (first.read_by, second.read_by) == ((1,), ())
    story.happens(f.InstructionRead(at=3, subtask="api", number=7, count=2))
    assert instruction_views(story.of("api"))[1].read_by == (), "there is no such attempt"
