"""A planner and three workers: retrieval, processing, summary. Each scene checks its result in git.

A simulated model plays planner and workers from `scripts.py`. Fetching, computing, checking and landing are real.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from examples.demo.fleet_cli import DemoError, Fleet, open_questions
from examples.play import SceneError, expect, play
from examples.research.pages import served
from examples.research.scripts import COMPETITION, COMPETITORS, QUESTION, RESEARCH, Json

HERE = Path(__file__).resolve().parent
PATIENCE_S, LOOK_EVERY_S = 120.0, 0.5
ANSWER = "In millimetres."
CONFIG = """
[planner]
settle_s = 0.1

[limits]
backoff_first_s = 0.5

[workers.retrieval]
kind = "retriever"
description = "Fetches raw data from the listed hosts, or says what went wrong."
hosts = ["{site}"]

[workers.processing]
kind = "processor"
description = "Transforms data and computes with the programs in tools/."

[workers.summary]
kind = "writer"
description = "Explains the results in plain words."
"""


@dataclass(frozen=True)
class Stage:
    """A notebook to work on, and a fleet whose model plays a script."""

    room: Path
    fleet: Fleet
    url: str

    def run(self, name: str, epic: str) -> Json:
        """Run an epic to its end, answering its questions. Returns its last status."""
        answered: set[str] = set()
        epic_file = self.room / "epic.md"
        epic_file.write_text(epic, encoding="utf-8")
        arguments = ("run", str(epic_file), "--name", name, "--repo", str(self.room / "notebook"), "--yes", "--no-tui")
        command = self.fleet.command(*arguments, "--plain", "--config", str(self.fleet.config), "--base-url", self.url)
        until = time.monotonic() + PATIENCE_S
        with subprocess.Popen(command, env=self.fleet.environment, stdin=subprocess.DEVNULL) as process:
            while process.poll() is None:
                if time.monotonic() > until:
                    process.kill()
                    raise SceneError(f"{name} did not end within {PATIENCE_S:.0f} s")
                for question in open_questions(self.fleet.status(name) or {}):
                    if question.id not in answered and self.fleet.answer(question, ANSWER, name):
                        print(f"  you: {ANSWER}", flush=True)
                        answered.add(question.id)
                time.sleep(LOOK_EVERY_S)
        return dict(self.fleet.status(name) or {})

    def strategy(self, name: str, subtask: str) -> str:
        """Return the strategy that recovered a failed subtask, or `human`."""
        command = self.fleet.command("show", subtask, "--run", name, "--json")
        shown = subprocess.run(command, env=self.fleet.environment, check=True, capture_output=True)
        return str(json.loads(shown.stdout)["incidents"][0]["strategy"])

    def result(self, name: str, path: str) -> str:
        """A file on the result branch."""
        shown = ["git", "show", f"fleet/{name}:{path}"]
        return subprocess.run(shown, cwd=self.room / "notebook", check=True, capture_output=True, text=True).stdout


@contextmanager
def staged(script: Json) -> Iterator[Stage]:
    with TemporaryDirectory(prefix="fleet-research-") as folder, served() as site:
        room = Path(folder)
        shutil.copytree(HERE / "notebook", room / "notebook", ignore=shutil.ignore_patterns("__pycache__"))
        who = ("-c", "user.name=Ada Example", "-c", "user.email=ada@example.invalid")
        for arguments in (("init", "-q", "-b", "main"), ("add", "-A"), (*who, "commit", "-qm", "A notebook")):
            subprocess.run(["git", *arguments], cwd=room / "notebook", check=True)
        (room / "script.json").write_text(json.dumps(script).replace("SITE", site), encoding="utf-8")
        (room / "fleet.toml").write_text(CONFIG.format(site=site), encoding="utf-8")
        fleet = Fleet(state=room / "state", config=room / "fleet.toml")
        try:
            with fleet.simulated_model(room / "script.json") as url:
                yield Stage(room, fleet, url)
        except DemoError as error:
            raise SceneError(str(error)) from None


def question() -> None:
    """Step by step, with one failure for each strategy: retry, alternative, split, human."""
    with staged(QUESTION) as stage:
        status = stage.run("question", RESEARCH)
        expect(status.get("state") == "landed", "it has landed")
        expected = {"rain": "retry", "people": "alternative", "compute": "split", "summary": "human"}
        strategies = {subtask: stage.strategy("question", subtask) for subtask in expected}
        expect(strategies == expected, f"each strategy was used once: {expected}")
        expect("30 mm" in stage.result("question", "summary.md"), "the summary says what was computed")


def competitors() -> None:
    """Step 3 fails with "page not found", and the planner revises steps 4 and 5."""
    with staged(COMPETITION) as stage:
        status = stage.run("competitors", COMPETITORS)
        expect(status.get("plan_version") == 2, "the plan was revised once")  # noqa: PLR2004 - the first, and one more
        comparison = stage.result("competitors", "comparison.md")
        expect("second-hand" in comparison and "Beta: 12" in comparison, "the comparison says what is second-hand")
        print(comparison)


SCENES: dict[str, Callable[[], None]] = {"question": question, "competitors": competitors}


def main(chosen: Sequence[str]) -> int:
    return play(SCENES, chosen)
