"""`fleet logs --follow`: a conversation as it grows, attempt after attempt, and its end."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fleet.cli.verbs.look import FollowedLog
from fleet.core.plans.limits import Policy
from fleet.runs.journal import Journal, engine_lock
from fleet.runs.run_folder import RunFolder
from tests.fleet.core.story import Story, plan_of
from tests.fleet.program import fleet, left_run


class Growing:
    """A run whose engine works: facts and conversations come one by one."""

    def __init__(self, folder: RunFolder, journal: Journal, client: Journal, engine: ExitStack) -> None:
        self.folder, self.journal, self._client, self.engine = folder, journal, client, engine
        self.story = Story(Policy(workers=2, max_attempts=3), plan_of("api", "docs"))
        folder.transcripts.mkdir()
        self.record()

    def record(self) -> None:
        self.journal.append(self.story.facts[self.journal.length :])

    def followed(self, name: str, number: int | None) -> FollowedLog:
        return FollowedLog(self.folder, self._client, name, number)

    def says(self, name: str, number: int, *lines: str) -> None:
        with (self.folder.transcripts / f"{name}.{number}.jsonl").open("a") as file:
            file.write("".join(lines))


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    folder = RunFolder(tmp_path / "runs" / "r")
    with Journal.create(folder.journal) as journal, Journal(folder.journal) as client, ExitStack() as engine:
        engine.enter_context(engine_lock(folder.journal))
        yield Growing(folder, journal, client, engine)


def line(text: str) -> str:
    return json.dumps({"event": "said", "content": text}) + "\n"


def texts(log: FollowedLog) -> tuple[list[str], bool]:
    entries, will_grow = log.new()
    return [entry["content"] for entry in entries], will_grow


def test_a_conversation_is_followed_line_by_line_through_all_attempts(growing: Growing) -> None:
    log = growing.followed("api", None)
    assert texts(log) == ([], True), "nobody has begun"
    growing.says("api", 1, line("one"), line("two")[:9])
    growing.says("apiary", 1, line("another subtask"))
    assert texts(log) == (["one"], True), "a line that is being written waits for its end"
    growing.says("api", 1, line("two")[9:], "no JSON\n", "[]\n")
    assert texts(log) == (["two"], True)
    growing.story.attempt_fails("api")
    growing.record()
    growing.says("api", 1, line("last"))
    growing.says("api", 2, line("größer"))
    growing.says("api", 10, line("much later"))
    assert texts(log) == (["last", "größer", "much later"], True)
    growing.story.planner_answers(retry=[{"id": "api", "guidance": "once more"}])
    growing.story.landed("api")
    growing.record()
    assert texts(log) == ([], False)


def test_an_attempt_that_is_named_is_followed_alone(growing: Growing) -> None:
    log = growing.followed("api", 1)
    growing.says("api", 1, line("one"))
    growing.says("api", 2, line("other"))
    assert texts(log) == (["one"], True)
    growing.story.attempt_fails("api")
    growing.record()
    growing.says("api", 1, line("end"))
    assert texts(log) == (["end"], False)
    assert texts(growing.followed("api", 2)) == (["other"], True)


def test_the_planner_is_followed_until_nothing_runs_the_run(growing: Growing) -> None:
    log = growing.followed("planner", None)
    growing.says("planner", 1, line("plan"))
    assert texts(log) == (["plan"], True)
    growing.says("planner", 2, line("again"))
    growing.engine.close()
    assert texts(log) == (["again"], False)


def test_a_run_that_nothing_runs_is_printed_to_its_end(tmp_path: Path) -> None:
    folder = left_run(tmp_path)
    folder.transcripts.mkdir()
    (folder.transcripts / "docs.1.jsonl").write_text(line("written") + line("\x1b]0;evil\x07"))
    shown = fleet("logs", "docs", "-f", cwd=tmp_path)
    assert (shown.returncode, shown.stdout.split()[:3]) == (0, ["──", "said", "written"])
    assert "\x1b" not in shown.stdout
    as_json = fleet("logs", "docs", "--follow", "--json", cwd=tmp_path).stdout.splitlines()
    assert json.loads(as_json[0])["content"] == "written"
    nothing = fleet("logs", "api", "--follow", cwd=tmp_path)
    assert (nothing.returncode, "api does not have a log yet" in nothing.stderr) == (2, True)
    refused = fleet("logs", "gate", "--follow", cwd=tmp_path)
    assert (refused.returncode, "--follow can't be used with" in refused.stderr) == (2, True)
