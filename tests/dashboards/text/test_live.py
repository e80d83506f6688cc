"""The live screen: it always fits the terminal, and shows hostile text as text."""

import re
from io import StringIO
from itertools import pairwise

import pytest
from rich.console import Console

from dashboards.text.summary import AGENTS, LiveScreen
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.state.state import RunState
from fleet.read.run import RunSnapshot
from tests.dashboards.hostile import HOSTILE, hostile_story, problems
from tests.fleet.core.story import Story, plan_of

SIZES = [(80, 24), (200, 24), (40, 10)]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
UP = re.compile(r"\x1b\[1A")


def console(width: int, height: int) -> Console:
    return Console(
        file=StringIO(),
        force_terminal=True,
        width=width,
        height=height,
        highlight=False,
        color_system="standard",
        _environ={},  # NO_COLOR, COLUMNS and their like are not what is tested
    )


def written(screen: Console) -> str:
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue()


def frames(state: RunState, size: tuple[int, int], count: int = 3) -> tuple[list[str], str]:
    """The text of a screen's rows in its last frame, and everything it wrote."""
    terminal = console(*size)
    with LiveScreen(terminal) as live:
        for tick in range(count):
            terminal.file = StringIO()
            live.show(RunSnapshot(state, state.last_at + tick, alive=True))
        last = written(terminal)
    return ESCAPE.sub("", last).lstrip("\r").split("\n"), last


@pytest.fixture(scope="module")
def crowd() -> RunState:
    """A thousand subtasks, five hundred agents at work, ten questions, everything too long."""
    names = [f"subtask-with-a-long-name-{number}" for number in range(1000)]
    story = Story(Policy(workers=500, max_attempts=1), plan_of(*names))
    started = [f.WorkerStarted(at=0, subtask=name, number=1) for name in names[:500]]
    story.happens(*started)
    for name in names[:10]:
        story.model_is_called(name)
    for name in names[10:20]:
        red = f.Failure(kind="check", summary="long words " * 200)
        story.happens(f.AttemptFailed(at=0, subtask=name, number=1, failure=red))
    return story.state


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_thousand_subtasks_stay_within_the_screen(crowd: RunState, size: tuple[int, int]) -> None:
    rows, _ = frames(crowd, size)
    assert len(rows) <= size[1]
    assert max(map(len, rows)) <= size[0]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_each_frame_goes_back_over_the_one_before_and_no_further(crowd: RunState, size: tuple[int, int]) -> None:
    """Else the screen would creep up, or eat the events above it."""
    terminal, written_ = console(*size), []
    with LiveScreen(terminal) as live:
        for tick in range(5):
            terminal.file = StringIO()
            live.show(RunSnapshot(crowd, crowd.last_at + tick, alive=True))
            written_.append(written(terminal))
    for before, after in pairwise(written_[1:]):
        assert len(UP.findall(after)) == before.count("\n")


def test_what_matters_is_seen_on_a_small_screen(crowd: RunState) -> None:
    text = "\n".join(frames(crowd, (80, 24))[0])
    assert "0 of 1000 landed" in text
    assert f"agents {crowd.working()}/500" in text
    assert "? q1:" in text
    assert f"… and {len(list(crowd.underway())) - AGENTS} more" in text


def test_a_simulated_model_and_a_missing_sandbox_are_always_in_sight() -> None:
    state = Story(plan=plan_of("a")).state
    assert "simulated" not in "\n".join(frames(state, (80, 24))[0])
    story = Story(plan=plan_of("a"))
    first = story.facts[0].model_copy(update={"simulated": True, "sandbox": "none"})
    story.happens(first)
    head = frames(story.state, (80, 24))[0][0]
    assert "simulated model" in head
    assert "NO SANDBOX" in head


def test_each_step_of_an_attempt_has_its_word() -> None:
    story = Story(plan=plan_of("a", "b", "c"))
    story.happens(f.WorkerStarted(at=0, subtask="b", number=1))
    report = f.Report(status="done", summary="did it")
    story.happens(f.AttemptCommitted(at=0, subtask="c", number=1, commit="c", paths=("x",), report=report))
    rows = frames(story.state, (80, 24))[0]
    assert [row.split()[:2] for row in rows if row.startswith("  ")] == [
        ["a", "starting"],
        ["b", "working"],
        ["c", "checking"],
    ]


def test_a_hostile_run_reaches_the_terminal_only_as_text() -> None:
    for state, _ in hostile_story():
        rows, everything = frames(state, (80, 24), count=2)
        assert problems(row.replace("\r", "") for row in rows) == []
        assert "\x07" not in everything
        assert "\x1b]" not in everything
        assert "\x9b" not in everything


def test_markup_in_an_event_is_shown_and_not_obeyed() -> None:
    terminal = console(80, 24)
    with LiveScreen(terminal) as live:
        live.event("[bold red]x[/nope] [@click=app.quit]y[/]")
    assert "[bold red]x[/nope] [@click=app.quit]y[/]" in written(terminal)


def test_markup_in_what_an_agent_does_is_shown_and_not_obeyed() -> None:
    story = Story(plan=plan_of("a"))
    story.model_is_called("a", turn=2, doing=f"[/bad] [bold]{HOSTILE}")
    assert "turn 2  [/bad] [bold]" in "\n".join(frames(story.state, (120, 24))[0])


def test_the_screen_is_gone_when_it_is_left(crowd: RunState) -> None:
    terminal = console(80, 24)
    with LiveScreen(terminal) as live:
        live.show(RunSnapshot(crowd, 0, alive=True))
        shown = written(terminal)
    rest = written(terminal).removeprefix(shown)
    assert "agents" not in ESCAPE.sub("", rest).split("\r")[-1]
    assert "\x1b[?25h" in rest  # the cursor is back
