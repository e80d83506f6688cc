"""What the command line prints about runs, statuses, subtasks and conversations: right, harmless, bounded."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.report.drawing import markdown
from dashboards.terminal.landing_page import landing_page
from dashboards.terminal.lines import PageOptions
from dashboards.text import event_text
from dashboards.text.event_text import events_of, transcript_lines
from dashboards.text.formats import count, duration, money
from dashboards.text.summary import summary_lines
from dashboards.text.tables import runs_lines, status_lines, subtask_lines
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.read.base_view import dump_view
from fleet.read.follow import FollowedRun
from fleet.read.report_data import report_data
from fleet.read.run import RunSnapshot, just_after, status_view
from fleet.read.subtask_view import subtask_view
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.hostile import HOSTILE, hostile_run, problems
from tests.effort import examples
from tests.fleet.core.story import Story, plan_of

NOW = 1_700_002_010.0


def finished() -> Story:
    story = Story(Policy(max_retries=3), plan_of("api", "docs", "web needs api", failure_action="ask"))
    story.model_is_called("api", 0.5)
    story.attempt_fails("api", "transient")
    story.time_passes_to_the_next_wake()
    story.landed("api")
    story.attempt_fails("docs")
    story.landed("web")
    story.time_passes(Policy().answer_wait_s)
    return story


# ---- the summary -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alive", [True, False])
def test_the_summary_of_a_hostile_run_is_harmless(*, alive: bool) -> None:
    assert problems(summary_lines(RunSnapshot(hostile_run(), NOW, alive))) == []


@pytest.mark.parametrize("alone", [False, True])
def test_commits_that_were_not_tested_by_themselves_are_counted_in_every_view_of_landing(*, alone: bool) -> None:
    """`b` and `c` land together, on the tree of `c`: the views count commits without a test of their own."""
    story = Story(Policy(every_commit_within_s=0, slots=1), plan_of("a", "b", "c"))
    story.work_is_done("a", "b", "c")
    members: tuple[f.Member, ...] = ()
    while story.state.landing.open_batches:
        [probe] = story.state.landing.open_batches
        last = len(probe.members) - 1
        members = tuple(m.model_copy(update={"tested": alone or n == last}) for n, m in enumerate(probe.members))
        story.happens(f.BatchTested(at=story.now, number=probe.number, tip=f"tip-{probe.number}", landed=members))
    story.is_published()
    data = report_data(story.facts, story.now, alive=False)
    assert data is not None
    watched = FollowedRun(MemoryFeed(story.facts, alive=True), lambda: story.now, tell=events_of)
    page = landing_page(watched, RunSnapshot(story.state, story.now, alive=True), PageOptions())
    places = {
        "status": "\n".join(status_lines(status_view(story.state, story.now, alive=True))),
        "summary": "\n".join(summary_lines(RunSnapshot(story.state, story.now, alive=False))),
        "report": markdown(data),
        "page": "".join(text for text, _ in page.draw(0, 0)),
        "lines": "\n".join(
            line for fact in story.facts if (line := event_text.event_text(just_after(story.state), fact)) is not None
        ),
    }
    wanted = "1 only tested together with the next commit"
    assert {place for place, text in places.items() if wanted in text} == (set() if alone else set(places))


def test_after_a_relanding_the_result_is_taken_under_the_name_of_the_run_that_made_it() -> None:
    relanding = f.Relanding(run="r", branch="main", since="s", result="e")
    told = Story(Policy(publishes=False), plan_of("api"), relanding=relanding)
    told.work_is_done("api")
    told.batch_lands()
    steps = "\n".join(summary_lines(RunSnapshot(told.state, told.now, alive=False))).partition("Next steps")[2]
    assert "fleet merge r --into main" in steps
    assert "git log" not in steps


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_the_status_of_a_hostile_run_is_harmless() -> None:
    state = hostile_run()
    view = status_view(state, NOW, alive=True)
    assert problems(status_lines(view)) == []
    assert problems(runs_lines([view, view])) == []
    for spec in state.plan.subtasks:
        assert problems(subtask_lines(subtask_view(state, spec, NOW))) == []


def test_huge_evidence_is_shown_by_its_ends() -> None:
    story = Story(plan=plan_of("a", failure_action="ask"))
    red = f.Failure(kind="check", summary="s" * 10**6, evidence="".join(f"{number}\n" for number in range(10**5)))
    story.happens(f.AttemptFailed(at=1, subtask="a", number=1, failure=red))
    lines = subtask_lines(subtask_view(story.state, story.spec("a"), 1))
    assert len(lines) < 60
    assert max(map(len, lines)) < 2100
    assert any("lines omitted" in line for line in lines)


# ---- conversations ---------------------------------------------------------------------------------------------------


texts = st.text(max_size=8) | st.just(HOSTILE)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "image"]) | values},
    optional={"text": values, "name": values, "input": values, "content": values, "is_error": values},
)
entries_ = st.fixed_dictionaries(
    {}, optional={"event": values, "content": values | st.lists(blocks | values), "x": values}
)


@given(st.lists(entries_, max_size=3))
@examples(300)
def test_any_text_in_a_conversation_is_shown_harmlessly(entries: list[dict[str, Any]]) -> None:
    assert problems(transcript_lines(entries)) == []


def test_a_huge_conversation_is_bounded_a_message_at_a_time() -> None:
    huge = [{"event": "results", "content": [{"type": "tool_result", "content": "line\n" * 10**6}]}]
    assert len(list(transcript_lines(huge))) < 80
    assert max(map(len, transcript_lines([{"event": "e", "content": "x" * 10**7}]))) < 2100


# ---- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (60, "1 min 00 s"), (119.6, "2 min 00 s"), (3600, "1 h 00 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9_999, "9,999"), (10_000, "10.0k"), (999_949, "999.9k"), (999_950, "1.0M"), (2_345_678, "2.3M")],
)
def test_counts(number: int, text: str) -> None:
    assert count(number) == text


@pytest.mark.parametrize(
    ("dollars", "text"), [(None, "unknown"), (0, "$0.00"), (0.0012, "$0.0012"), (1, "$1.00"), (12.345, "$12.35")]
)
def test_money(dollars: float | None, text: str) -> None:
    assert money(dollars) == text


def test_views_of_a_large_run_are_short() -> None:
    """Bounded by work, not by time: a thousand subtasks are a thousand lines and no more."""
    story = Story(Policy(workers=1), plan_of(*(f"s{number}" for number in range(1000))))
    assert len(summary_lines(RunSnapshot(story.state, time.time(), alive=False))) < 1040
    assert len(json.dumps(dump_view(status_view(story.state, 0, alive=True)))) < 5000


def test_the_output_of_a_program_keeps_its_lines() -> None:
    entry = {"event": "command", "line": "make", "exit_code": 2, "output": "one\ntwo", "report": ""}
    assert list(transcript_lines([entry])) == ["── command  line=make  exit_code=2", "     one", "     two"]


def test_why_the_base_was_refused_is_the_set_ups_cause_or_the_gates() -> None:
    story = Story(Policy(check_base=True))
    check = f.CheckRun(criterion="set-up", command="npm ci", passed=False, exit_code=1, causes=("EAI_AGAIN",))
    story.happens(f.SetupRan(at=0, setup=f.SetupRun(commit="base", check=check)))
    story.happens(
        f.BaseChecked(at=0, base="base", failure=f.Failure(kind="configuration", summary="the set-up failed"))
    )
    view = status_view(story.state, 0, alive=False)
    assert (view.state, view.causes) == ("refused", ("EAI_AGAIN",))
    assert "worktrees.setup_network" in view.advice[0]


def test_the_status_says_what_waits_to_land_and_when_nothing_starts_because_of_it() -> None:
    story = Story(Policy(workers=1, batch=2, slots=1, every_commit_within_s=0), plan_of("a", "b", "c"))
    story.work_is_done("a")
    lines = status_lines(status_view(story.state, 0, alive=True))
    assert "  landing    1 queued, testing 1 batch" in lines
    story.work_is_done("b")
    lines = status_lines(status_view(story.state, 0, alive=True))
    assert "  landing    2 queued, testing 1 batch, queue full: new attempts wait until some have landed" in lines
