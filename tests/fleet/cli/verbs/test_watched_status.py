"""`fleet status --watch`: printed again after changes, in place on a terminal, until nothing runs the run."""

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from pathlib import Path

import anyio
import pytest

from fleet.cli.verbs.look import CLEAR, watch_status
from fleet.core.plans.limits import Policy
from fleet.runs.journal import Journal, engine_lock
from fleet.runs.run_folder import RunFolder
from tests.fleet.core.story import Story, plan_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Live:
    """A run on disk; each time that its watcher waits, the next step happens."""

    def __init__(self, folder: RunFolder, journal: Journal, engine: ExitStack) -> None:
        self.folder = folder
        self._story = Story(Policy(workers=2), plan_of(*(f"s{n}" for n in range(3))))
        self._journal = journal
        self._record()
        self._steps = [lambda: None, lambda: self._lands("s0"), engine.close]

    def _record(self) -> None:
        self._journal.append(self._story.facts[self._journal.length :])

    def _lands(self, id_: str) -> None:
        self._story.landed(id_)
        self._record()

    async def pause(self, _: float) -> None:
        await anyio.lowlevel.checkpoint()
        self._steps.pop(0)()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    folder = RunFolder(tmp_path / "runs" / "r")
    with Journal.create(folder.journal) as journal, ExitStack() as engine:
        engine.enter_context(engine_lock(folder.journal))
        yield Live(folder, journal, engine)


def test_a_pipe_gets_the_status_after_each_change_and_at_the_end(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    watch_status(live.folder, as_json=False, pause=live.pause)
    shown = capsys.readouterr().out
    first, second, last = shown.split("\n\n")
    assert "\x1b" not in shown
    assert ("1 merged" in first, "1 merged" in second, "1 merged" in last) == (False, True, True)
    assert ("interrupted" in second, "interrupted" in last) == (False, True)


def test_a_script_gets_a_line_after_each_change(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    watch_status(live.folder, as_json=True, pause=live.pause)
    views = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [view["subtasks"].get("merged", 0) for view in views] == [0, 1, 1]
    assert [view["state"] == "interrupted" for view in views] == [False, False, True]


def test_a_terminal_is_drawn_again_each_time_and_holds_what_fits(
    live: Live, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LINES", "6")
    with redirect_stdout(screen):
        watch_status(live.folder, as_json=False, pause=live.pause)
    pictures = screen.getvalue().split(CLEAR)[1:]
    assert len(pictures) == 4
    assert [picture.count("\n") <= 5 for picture in pictures] == [True, True, True, False]
    assert "more lines" in pictures[0]
    assert "more lines" not in pictures[-1]
    assert capsys.readouterr().out == ""
