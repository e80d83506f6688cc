"""What agents said is in the report: the last of it, in few words, and as text whatever it is."""

from dashboards.report.drawing import TEXT, markdown, page
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.read.report_data import LAST, MOST_AGENTS, ReportData, report_data
from tests.dashboards.hostile import HOSTILE, problems
from tests.fleet.core.story import Story, plan_of


def says(story: Story, said: str, *, subtask: str | None = "a", turn: int = 1, **fields: object) -> None:
    role = "worker" if subtask is not None else "planner"
    about = {"subtask": subtask, "attempt": 1} if subtask is not None else {"call": 1}
    called = f.ModelCalled(at=story.now, role=role, model="m", usage=Usage(), dollars=0.0, seconds=1.0, turn=turn)
    story.happens(called.model_copy(update={**about, "said": said, **fields}))


def report_of(story: Story) -> ReportData:
    data = report_data(story.facts, story.now, alive=False)
    assert data is not None
    return data


def test_what_a_worker_and_the_planner_say_is_in_the_report() -> None:
    story = Story()
    says(story, "I read the modules first.", subtask=None)
    story.planner_plans("a")
    story.time_passes(90)
    says(story, "The test wants a newline.")
    text = markdown(report_of(story))
    assert "## Agent summaries" in text
    assert "the run: planner, call 1, m" in text
    assert "1 min 30 s  The test wants a newline." in text
    assert "<details" in page(report_of(story))


def test_only_the_last_of_many_sayings_are_shown_and_the_others_counted() -> None:
    story = Story(plan=plan_of("a"))
    for turn in range(LAST + 3):
        says(story, f"thought {turn}", turn=turn)
        says(story, f"thought {turn}", turn=turn)
    [talk] = report_of(story).talks
    assert [saying.text for saying in talk.sayings] == [f"thought {turn}" for turn in range(3, LAST + 3)]
    assert talk.earlier == 3
    assert "… 3 earlier" in markdown(report_of(story))


def test_of_very_many_agents_the_others_are_counted() -> None:
    story = Story(plan=plan_of("a"))
    for call in range(1, MOST_AGENTS + 3):
        says(story, "hm", subtask=None, call=call)
        says(story, "hm, hm", subtask=None, call=call)
    data = report_of(story)
    assert (len(data.talks), data.talks_left_out) == (MOST_AGENTS, 2)
    assert "2 more agents not shown" in markdown(data)


def test_what_is_said_is_text_whatever_it_is() -> None:
    story = Story(plan=plan_of("a"))
    says(story, f"</pre></details><script>x</script> ``` {HOSTILE} {'long ' * 200}", model=f"m{HOSTILE}<video>")
    data = report_of(story)
    html, text = page(data), markdown(data)
    assert "<script>x" not in html
    assert "<video>" not in html
    assert "</pre></details><script>" not in html
    assert problems(text.splitlines()) == []
    line = next(line for line in text.splitlines() if "script" in line)
    assert "```" not in line
    assert len(line) < TEXT + 40


def test_where_no_one_said_anything_there_is_no_such_part() -> None:
    story = Story(plan=plan_of("a"))
    story.model_is_called("a")
    assert "Agent summaries" not in markdown(report_of(story))


def test_a_journal_without_facts_has_no_report() -> None:
    assert report_data([], 0, alive=False) is None
