"""A journal of the corpus as a state directory of its own, in which clock, zone, user and paths are always the same."""

import fcntl
import gzip
import json
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

JOURNALS = Path(__file__).parent / "journals"
FOLDER = re.compile(r"/tmp/corpus-\w{8}")  # noqa: S108 - see below
SHOWN_AS = "/tmp/corpus-########"  # noqa: S108 - how long a path is decides how a text is cut off
TOOLS = ("cat", "git", "sh")
"""Which programs there are decides what is said of a plan."""
SCHEMA = """
pragma journal_mode=wal;
create table facts (seq integer primary key, kind text not null, body text not null);
create table inbox (id integer primary key autoincrement, body text not null);
pragma user_version=1;
"""
"""As on the disks of people: it is written here once more, so that a mistake in the product's own can't hide."""
SAYS = {"type": "text", "text": "I read it first \x1b[31m\u202e[bold]."}
CALLS = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "make test"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "1 failed <b>"}
CONVERSATION = (
    {"event": "request", "turn": 1},
    {"event": "answer", "turn": 1, "content": [SAYS]},
    {"event": "answer", "turn": 2, "content": [CALLS]},
    {"event": "results", "turn": 2, "content": [RESULT]},
    {"event": "said", "content": "done"},
)


@dataclass(frozen=True)
class Recorded:
    """A journal of the corpus: its facts as they were written, what it is about, and whether its engine is alive."""

    name: str

    @cached_property
    def lines(self) -> list[str]:
        return gzip.decompress((JOURNALS / f"{self.name}.jsonl.gz").read_bytes()).decode().split("\n")[:-1]

    @property
    def about(self) -> dict[str, Any]:
        about: dict[str, Any] = json.loads(self.lines[0])
        return about

    @property
    def facts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines[1:]]

    @property
    def now(self) -> float:
        return float(max(fact["at"] for fact in self.facts) + 10)

    @property
    def subtasks(self) -> list[str]:
        """The subtasks with an attempt, in the order in which they began."""
        return list(dict.fromkeys(fact["subtask"] for fact in self.facts if fact["kind"] == "attempt_started"))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fact for fact in self.facts if fact["kind"] == kind]


@contextmanager
def opened(*recorded: Recorded, alive: bool | None = None) -> Iterator[Path]:
    """A folder with the state directory of these runs, as the working directory and the home of this process."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="corpus-", dir="/tmp"))
        stack.callback(shutil.rmtree, folder)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        _fix_surroundings(patch, folder, max(each.now for each in recorded))
        stack.callback(_restore_zone, patch)
        for each in recorded:
            run = folder / "state" / "runs" / each.name
            _write(run, each)
            if each.about["alive"] if alive is None else alive:
                stack.enter_context(_engine(run))
        yield folder


def _fix_surroundings(patch: pytest.MonkeyPatch, folder: Path, now: float) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "LANGUAGE", "LC_CTYPE", "XDG_STATE_HOME", "FLEET_CONFIG"):
        patch.delenv(name, raising=False)
    surroundings = {
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "FLEET_STATE_DIR": str(folder / "state"),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "LANG": "C.UTF-8",
        "LOGNAME": "ada",
        "COLUMNS": "100",
        "LINES": "40",
        "TERM": "xterm-256color",
        "PATH": str(folder / "bin"),
    }
    (folder / "bin").mkdir()
    for tool in TOOLS:
        (folder / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    for name, value in surroundings.items():
        patch.setenv(name, value)
    patch.chdir(folder)
    patch.setattr(time, "time", lambda: now)
    time.tzset()


def _restore_zone(patch: pytest.MonkeyPatch) -> None:
    patch.undo()
    time.tzset()


def _write(run: Path, recorded: Recorded) -> None:
    """The journal word for word: what an old version wrote has none of the fields that came later."""
    (run / "transcripts").mkdir(parents=True)
    (run / "checks").mkdir()
    with closing(sqlite3.connect(run / "journal.db")) as db:
        db.executescript(SCHEMA)
        rows = [(json.loads(line)["kind"], line) for line in recorded.lines[1:]]
        db.execute("begin")
        db.executemany("insert into facts (kind, body) values (?, ?)", rows)
        db.execute("commit")
    text = "".join(json.dumps(entry) + "\n" for entry in CONVERSATION)
    for name in ("planner", *recorded.subtasks[:1]):
        (run / "transcripts" / f"{name}.1.jsonl").write_text(text, encoding="utf-8")


@contextmanager
def _engine(run: Path) -> Iterator[None]:
    """The lock that an engine holds while it works on a run."""
    with (run / "engine.lock").open("w+") as lock:
        lock.write('{"pid": 7, "host": "here"}')
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
