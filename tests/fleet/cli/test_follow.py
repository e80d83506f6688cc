"""What an engine of this process records is shown once, and what earlier engines did is not shown again."""

from pathlib import Path

from fleet.cli.engine import RunDisplay, Screen
from fleet.core.facts import facts as f
from fleet.read.run import RunSnapshot, just_after
from fleet.runs.run_folder import RunFolder
from tests.fleet.core.story import Story, plan_of


def lines_of(folder: Path, shown: int) -> tuple[list[str], list[float]]:
    """The lines of a display that skips `shown` facts, and the times of the states that it showed."""
    lines, times = list[str](), list[float]()

    def show(run: RunSnapshot) -> None:
        times.append(run.last_at)

    display = RunDisplay(RunFolder(folder), Screen(lines.append, lines.append, show), shown, interactive=True)
    display.refresh()
    story = Story(plan=plan_of("one"))
    for at in (1.0, 2.0):
        story.happens(f.WarningNoted(at=at, text=f"number {at:.0f}"))
        printed = len(lines)
        display.take(story.facts[-1], just_after(story.state))
        assert len(lines) == printed, "nothing is printed while the engine records"
        display.refresh()
    display.refresh()
    return lines, times


def test_each_new_fact_is_shown_once(tmp_path: Path) -> None:
    lines, times = lines_of(tmp_path, 0)
    assert [line[-8:] for line in lines] == ["number 1", "number 2"]
    assert times == [1.0, 2.0, 2.0]


def test_what_was_there_before_is_only_in_the_state(tmp_path: Path) -> None:
    lines, times = lines_of(tmp_path, 1)
    assert [line[-8:] for line in lines] == ["number 2"]
    assert times == [1.0, 2.0, 2.0]
