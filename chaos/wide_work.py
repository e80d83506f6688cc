"""The work of a wide run: a project, a plan of any width, a worker that fails on purpose, and the expected result.

One subtask in twenty meets a fault in its first attempt. The kinds take turns, on subtasks that the seed chooses. Two
kinds concern pairs: changes that conflict, and changes that fail together.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from itertools import cycle
from pathlib import Path
from random import Random

from tests.worktrees.conftest import git

FOLDER, SHARED, PAIRS = 100, "shared", "pairs"  # subtasks of a folder; folders of the files of two
LINES = 60  # of each file
FIRST_ATTEMPT: dict[str, str] = {
    "exits": "exit 3",
    "hangs": "sleep 600",
    "does nothing": "exit 0",
    "does it wrong": 'mkdir -p "${file%/*}"; echo wrong >"$file"; exit 0',
    "floods": "head -c 20000000 /dev/zero | tr '\\0' x; exit 1",
    "leaves processes": "for n in 1 2 3; do setsid sleep 300 & done; exit 1",
    "killed": "kill -9 $$",
    "writes elsewhere": "echo mine >src/part0/mine; exit 0",
    "writes a key": 'mkdir -p "${file%/*}"; echo "AKIA""IOSFODNN7EXAMPLF" >"$file"; exit 0',
    "litters": "mkdir -p /tmp/litter; for n in $(seq 500); do echo $n >/tmp/litter/$n; done",
    "forks": "for n in $(seq 40); do sleep 0.1 & done; wait",
    "reports nonsense": 'echo "{" >"$FLEET_REPORT"; exit 0',
}
"""Action of the worker before its work, in its first attempt."""
PAIRED = ("conflict", "red together")
FAULTS = (*FIRST_ATTEMPT, *PAIRED)
WORKER = """\
#!/bin/sh
# One attempt at a subtask: the fault that it is given, then the work.
id=$1 attempt=$2 fault=$3 file=$4 other=$5
if [ "$attempt" = 1 ]; then
    case $fault in
CASES
    esac
fi
mkdir -p "${file%/*}"
case $fault in
    conflict) echo "$id" >>"$other" ;;
    "red together") if ls "$other"/* >/dev/null 2>&1; then word=beside; else word=alone; fi
        mkdir -p "$other"; echo $word >"$other/$id" ;;
esac
echo "$id" >"$file"
"""
GATE = """\
#!/bin/sh
# Red where both of a pair think that they are alone.
for folder in pairs/*; do
    [ "$(cat "$folder"/* 2>/dev/null | grep -cx alone)" -le 1 ] || { echo "$folder: two are alone"; exit 1; }
done
"""
CONFIGURATION = """\
[run]
workers = {workers}

[box]
commands = {workers}

[limits]
attempts = 6
retries = 20
backoff_first_s = 0.2
backoff_cap_s = 2

[checks]
gate = "sh tools/gate.sh"

[workers.works]
kind = "command"
description = "Writes a file, after what goes wrong."
command = "sh tools/work.sh {{id}} {{attempt}} {{parameters.fault}} {{parameters.file}} {{parameters.other}}"
time_s = {time_s}
"""


@dataclass(frozen=True)
class WideWork:
    """The work of a run of this width."""

    subtasks: int
    share: float
    """Of the subtasks that meet a fault."""
    seed: int
    faults: Mapping[int, str] = field(init=False)
    """By the number of the subtask."""

    def __post_init__(self) -> None:
        chance, count = Random(self.seed), round(self.subtasks * self.share)  # noqa: S311 - not a secret
        numbers = chance.sample(range(self.subtasks), count)
        object.__setattr__(self, "faults", dict(zip(numbers, _kinds(count), strict=True)))

    def id_of(self, number: int) -> str:
        return f"s{number:05}"

    def file_of(self, number: int) -> str:
        return f"work/{number // FOLDER:03}/{self.id_of(number)}.txt"

    def other_of(self, number: int) -> str:
        """The file or the folder that one of a pair has in common with the other."""
        fault = self.faults.get(number, "")
        if fault not in PAIRED:
            return "-"
        alike = [each for each in self.faults if self.faults[each] == fault]
        pair = alike.index(number) // 2
        return f"{SHARED}/{pair:03}.txt" if fault == "conflict" else f"{PAIRS}/{pair:03}"

    def plan(self) -> str:
        return json.dumps(
            {"goal": f"{self.subtasks} files", "subtasks": list(map(self._subtask, range(self.subtasks)))}
        )

    def _subtask(self, number: int) -> dict[str, object]:
        file, other = self.file_of(number), self.other_of(number)
        return {
            "id": self.id_of(number),
            "title": f"Write {self.id_of(number)}",
            "goal": f"Write {file}.",
            "acceptance": [{"criterion": "it is there", "run": f"grep -qx {self.id_of(number)} {file}"}],
            "touches": [file, *([other, f"{other}/*"] if other != "-" else [])],
            "worker": "works",
            "parameters": {"fault": self.faults.get(number, "none"), "file": file, "other": other},
            "failure_action": "retry",
        }

    # ---- the project

    def make(self, project: Path, files: int) -> str:
        """Create a repository with files, worker, gate and shared parts of pairs. Return the commit."""
        for number in range(files):
            module = project / f"src/part{number // 1000}/folder{number // 20 % 50}/module{number % 20}.py"
            if number % 20 == 0:
                module.parent.mkdir(parents=True)
            module.write_text(f"# file {number}\n" + f"value = {number}\n" * LINES, encoding="utf-8")
        cases = "\n".join(f'    "{fault}") {script} ;;' for fault, script in FIRST_ATTEMPT.items())
        texts = {"tools/work.sh": WORKER.replace("CASES", cases), "tools/gate.sh": GATE}
        texts |= {self.other_of(each): "start\n" for each in self.faults if self.faults[each] == "conflict"}
        for path, text in texts.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text, encoding="utf-8")
        git(project, "init", "--quiet")
        git(project, "add", "-A")
        git(project, "commit", "--quiet", "-m", "tools")
        return git(project, "rev-parse", "HEAD")

    # ---- what landed

    def wrong(self, project: Path, base: str, branch: str) -> Iterator[str]:
        """Return problems of the result: a commit without its work, or a tree with a failing pair."""
        seen = set[str]()
        alone = set[str]()
        numbers = {self.id_of(number): number for number in range(self.subtasks)}
        for commit, subtask, changed in _commits(project, base, branch):
            number = numbers.get(subtask, -1)
            if number < 0 or subtask in seen:
                yield f"{commit[:12]} is of {subtask or 'no subtask'}, {'again' if subtask in seen else 'unknown'}"
                continue
            seen.add(subtask)
            other = self.other_of(number)
            stray = [path for path in changed if path != self.file_of(number) and not path.startswith(other)]
            if stray or changed.get(self.file_of(number)) != _blob_of(f"{subtask}\n"):
                yield f"{commit[:12]} does not hold the work of {subtask}: {', '.join(changed)}"
            if changed.get(f"{other}/{subtask}") == _blob_of("alone\n"):
                if other in alone:
                    yield f"{commit[:12]} has a red tree: {other} has two that are alone"
                alone.add(other)
        if missing := numbers.keys() - seen:
            yield f"{len(missing)} did not land, such as {min(missing)}"
        for number in (each for each in self.faults if self.faults[each] == "conflict"):
            if self.id_of(number) not in git(project, "show", f"{branch}:{self.other_of(number)}").split():
                yield f"{self.other_of(number)} has lost the line of {self.id_of(number)}"


def _kinds(count: int) -> list[str]:
    """Return faults, each kind in turn. Kinds about pairs use two subtasks, if there is room."""
    kinds: list[str] = []
    for kind in cycle(FAULTS):
        if len(kinds) == count:
            break
        times = 2 if kind in PAIRED else 1
        kinds += [kind] * times if len(kinds) + times <= count else [FAULTS[0]]
    return kinds


def _blob_of(text: str) -> str:
    """The id that git gives to a file with this text."""
    content = text.encode()
    return sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).hexdigest()


def _commits(project: Path, base: str, branch: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Each commit, oldest first: its subtask, and the blobs of the paths that it changed."""
    form = "--format=%x00%H %(trailers:key=Fleet-Task,valueonly,separator=%x20)"
    log = git(project, "log", "--reverse", "--raw", "--no-renames", "--no-abbrev", form, f"{base}..{branch}")
    for entry in log.split("\0")[1:]:
        head, *lines = entry.strip().splitlines()
        commit, _, subtask = head.partition(" ")
        rows = (line.split("\t", 1) for line in lines if line.startswith(":"))
        yield commit, subtask.strip(), {path: meta.split()[3] for meta, path in rows}
