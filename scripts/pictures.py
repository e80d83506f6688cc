"""Makes the pictures of the README and the docs: `make pictures`, or `python -B -m scripts.pictures [--demo FOLDER]`.

Plays the demo with 120 subtasks, or uses one played by `examples/demo/demo.py --keep FOLDER`. Textual captures pages of
the terminal UI as SVG, at moments of its journal. The report and the pages of `fleet web` are captured by the browser
that tests use (`scripts/web_pictures.py`).
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from textual.widgets import Input

from dashboards.report.drawing import page
from dashboards.terminal.app import FleetApp
from fleet.cli.terminal_data import FolderFeed, FolderLibrary, read_only
from fleet.config import environment
from fleet.core.facts.facts import Fact
from fleet.core.history.evolve import evolve
from fleet.core.state.state import RunState
from fleet.core.state.status import progress
from fleet.read.report_data import report_data
from scripts.moving_picture import animate
from scripts.web_pictures import Runs, capture_web, renamed
from tests.tools import environment as browser_environment
from tests.tools import tool

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
EVERY_PAGE = ROOT / "build" / "pictures"
"""Directory for all pages of `fleet web` in all variants. The documentation shows a few of them."""
SIZE = (120, 34)
REPOSITORY, PERSON = "/srv/textkit", "ada"
"""What the pictures show instead of this machine's folder and user."""
SHARE = 0.35  # of the subtasks whose work is done, or more, while the run is shown
_FOREIGN = re.compile(r"\s*@font-face \{.*?\}|<!--.*?-->\s*", re.DOTALL)
"""Parts to remove from a picture: external fonts and the generator's name."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A page of the terminal UI at one moment of the run."""

    moment: str
    keys: Sequence[str] = ()
    light: bool = False
    size: tuple[int, int] = SIZE


TERMINAL = {
    "overview": Picture("busy"),
    "agents-light": Picture("busy", ("2",), light=True),
    "plan": Picture("busy", ("3",)),
    "landing": Picture("busy", ("4",), size=(120, 26)),
    "conversation": Picture("busy", ("2", "down", "enter", "2")),
    "cost": Picture("ended", ("7",), size=(120, 30)),
    "incidents": Picture("ended", ("5",)),
    "question": Picture("asked", ("a",), size=(120, 30)),
    "ended": Picture("ended", size=(120, 30)),
}
MOVING = "run"
"""The picture that shows a run from its start to its end."""
SHOTS, SHOT_S, LAST_S = 14, 0.9, 4.0
"""How many screenshots it has, and how long each is shown."""
REPORTS = {"report": (1000, 1000), "report-phone": (390, 844)}


class Moment:
    """A run as it was when some fact was written."""

    def __init__(self, feed: FolderFeed, facts: Sequence[tuple[int, Fact]], *, alive: bool, run: str = "") -> None:
        self._feed, self._facts, self.alive, self.run = feed, facts, alive, run or feed.run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def facts(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        return [each for each in self._facts if each[0] > after][: limit if limit >= 0 else None]

    def changed(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class OneRun:
    """A library of one run, at one moment."""

    moment: Moment

    def names(self) -> Sequence[str]:
        return [self.moment.run]

    def open(self, run: str) -> Any:
        del run
        return self.moment


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.pictures", description=__doc__)
    parser.add_argument("--demo", type=Path, metavar="FOLDER", help="directory of a finished demo")
    chosen = parser.parse_args().demo
    with TemporaryDirectory(prefix="fleet-pictures-") as scratch:
        folder = chosen or Path(scratch) / "demo"
        if chosen is None:
            command = [sys.executable, str(ROOT / "examples/demo/demo.py"), "--subtasks", "120", "--keep", str(folder)]
            if code := subprocess.run(command, check=False).returncode:
                return code
        PICTURES.mkdir(exist_ok=True)
        with FolderLibrary(folder / "state", read_only) as library:
            feed = library.open(library.names()[0])
            facts = [(seq, _anonymous(fact)) for seq, fact in feed.facts(0, -1)]
        for name, picture in TERMINAL.items():
            anyio.run(_capture, name, picture, feed, facts)
        anyio.run(_capture_moving, feed, facts)
        _capture_report([fact for _, fact in facts], Path(scratch))
        shutil.rmtree(EVERY_PAGE, ignore_errors=True)
        EVERY_PAGE.mkdir(parents=True)
        anyio.run(_capture_web, feed, facts, Path(scratch))
    print(f"pictures: every page of `fleet web` is in {EVERY_PAGE.relative_to(ROOT)}")
    for path in sorted(PICTURES.iterdir()):
        print(f"pictures: {path.relative_to(ROOT)}, {path.stat().st_size / 1024:.0f} KiB")
    return 0


def _anonymous(fact: Fact) -> Fact:
    """Without names of this machine."""
    changes: dict[str, str] = {}
    if hasattr(fact, "repository"):
        changes["repository"] = REPOSITORY
    if getattr(fact, "by", None) == environment.user():
        changes["by"] = PERSON
    return fact.model_copy(update=changes) if changes else fact


# ---- the terminal UI ------------------------------------------------------------------------------------------------


async def _capture(name: str, picture: Picture, feed: FolderFeed, facts: Sequence[tuple[int, Fact]]) -> None:
    until = facts if picture.moment == "ended" else facts[: _moment(facts, picture.moment)]
    moment = Moment(feed, until, alive=picture.moment != "ended")
    svg = await _screenshot(moment, picture, until[-1][1].at + 1)
    (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")


async def _capture_moving(feed: FolderFeed, facts: Sequence[tuple[int, Fact]]) -> None:
    """The overview from the first plan to the end, at equal distances in time."""
    first = facts[_moment(facts, "planned") - 1][1].at
    last = facts[-1][1].at
    shots: list[str] = []
    for number in range(SHOTS):
        at = first + (last - first) * number / (SHOTS - 1)
        until = [each for each in facts if each[1].at <= at]
        moment = Moment(feed, until, alive=len(until) < len(facts))
        shots.append(await _screenshot(moment, Picture("", size=(120, 30)), at))
    (PICTURES / f"{MOVING}.svg").write_text(animate(shots, seconds=SHOT_S, last=LAST_S), encoding="utf-8")


async def _screenshot(moment: Moment, picture: Picture, at: float) -> str:
    app = FleetApp(OneRun(moment), moment.run, user=PERSON, clock=lambda: at, light=picture.light)
    async with app.run_test(size=picture.size) as pilot:
        while not app.watched.loaded:
            await pilot.pause()
        await pilot.press(*picture.keys)
        await pilot.pause()
        for field in app.screen.query(Input):
            field.cursor_blink = False
        await pilot.pause()
        return _FOREIGN.sub("", app.export_screenshot(title="fleet watch", simplify=True))


def _moment(facts: Sequence[tuple[int, Fact]], name: str) -> int:
    """Return the number of facts written by then."""
    arrived: dict[str, Callable[[RunState], bool]] = {
        "busy": lambda state: _done(state) >= SHARE * max(1, progress(state).total),
        "planned": lambda state: progress(state).total > 0,
        "asked": lambda state: bool(state.open_questions()),
    }
    state: RunState | None = None
    for place, (_, fact) in enumerate(facts, 1):
        state = evolve(state, fact)
        if arrived[name](state):
            return place
    raise ValueError(f"this run has no moment {name!r}")


def _done(state: RunState) -> int:
    """Return the number of subtasks that have landed or are about to."""
    return progress(state).done + sum(attempt.commit is not None for _, attempt in state.underway())


# ---- the pages in a browser -----------------------------------------------------------------------------------------


async def _capture_web(feed: FolderFeed, facts: Sequence[tuple[int, Fact]], scratch: Path) -> None:
    """The demo at three moments, as three runs."""
    lengths = {"textkit-asks": _moment(facts, "asked"), "textkit": _moment(facts, "busy"), "textkit-done": len(facts)}
    moments = {
        name: Moment(feed, renamed(facts[:length], name), run=name, alive=length < len(facts))
        for name, length in lengths.items()
    }
    at = facts[lengths["textkit"] - 1][1].at + 1
    await capture_web(Runs(moments), at, scratch, everything=EVERY_PAGE, shown=PICTURES)


# ---- the report -----------------------------------------------------------------------------------------------------


def _capture_report(facts: Sequence[Fact], scratch: Path) -> None:
    data = report_data(facts, facts[-1].at, alive=False)
    if data is None:
        raise ValueError("the run has no facts")
    html = scratch / "report.html"
    html.write_text(page(data), encoding="utf-8")
    for name, (width, height) in REPORTS.items():
        options = ("--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}")
        out = f"--screenshot={PICTURES / name}.png"
        command = [tool("chromium-headless-shell"), *options, f"--user-data-dir={scratch / 'profile'}", out]
        subprocess.run(
            [*command, html.as_uri()], env=browser_environment(scratch), check=True, capture_output=True, timeout=120
        )


if __name__ == "__main__":
    sys.exit(main())
