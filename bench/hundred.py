"""A hundred independent subtasks of one second each: `fleet run --plan` compared with a shell script and plain git.

Fleet's side is the program as shipped, from its start to its end: a plan file, workers of the kind `command`, boxes,
checks before and after the work, landing, the result branch. The script's side: `git worktree add` one after another,
work and commits side by side, then one `git merge` after another, with `test -f` after each commit and each merge. With
a gate, fleet tests the tree of every commit, and the script runs the gate once, at the end.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from anyio import to_thread

from bench.side_by_side import (
    KINDS,
    Cost,
    Costs,
    Extent,
    Limits,
    Project,
    Stopwatch,
    Variant,
    files_label,
    generated_project,
    git,
    interleave,
    plain_environment,
    ratios,
)
from fleet.core.base.ids import result_branch
from fleet.read.run_view import commits_tested
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, progress
from worktrees.base.settings import LeaseKind

SUBTASKS = 100
TINY = 20  # files
NO_SERVICE = "http://127.0.0.1:9"
"""No model is called: the plan is given, and all of it succeeds."""
GATE = "python3 -m compileall -q src"
WANTED: Limits = {"overlay": {TINY: 1.4, 10_000: 0.25}}
WANTED_WITH_GATE: Limits = {"overlay": {TINY: 1.8}}
CONFIGURATION = """\
[run]
workers = {count}

[box]
commands = {count}

[worktrees]
lease = "{lease}"

[checks]
gate = "{gate}"

[workers.writes]
kind = "command"
description = "Writes its name into a file, after a second."
command = "sh -c 'sleep 1; mkdir -p done; echo $1 > done/$1' sh {{id}}"
"""
SCRIPT = """\
set -eu
project=$1 work=$2 round=$3 gate=$4 base=$(git -C "$1" rev-parse HEAD)
git -C "$project" worktree add --quiet -b "into-$round" "$work/into" "$base"
names=$(seq 0 99)
for name in $names; do
    git -C "$project" worktree add --quiet -b "s$round-$name" "$work/s$name" "$base"
done
for name in $names; do
    (
        cd "$work/s$name"
        sleep 1
        mkdir -p done
        echo "s$name" > "done/s$name"
        git add -A
        git commit --quiet -m "s$name"
        test -f "done/s$name"
    ) &
done
wait
for name in $names; do
    git -C "$work/into" merge --quiet --no-ff -m "s$name" "s$round-$name"
    test -f "$work/into/done/s$name"
done
cd "$work/into"
eval "$gate"
"""


def plan_file(count: int) -> str:
    subtasks = [
        {
            "id": name,
            "title": f"Write {name}",
            "goal": f"Write done/{name}.",
            "acceptance": [{"criterion": "it is there", "run": f"test -f done/{name}"}],
            "worker": "writes",
        }
        for name in (f"s{number}" for number in range(count))
    ]
    return json.dumps({"goal": "a hundred files", "subtasks": subtasks})


async def hundred_figures(extent: Extent) -> list[Figure]:
    """Wall time and result, in a tiny repository (also with a gate) and in one of 10,000 files."""
    figures: list[Figure] = []
    for files, rounds in ((TINY, extent.whole_runs + 1), (10_000, extent.whole_runs)):
        progress(f"{SUBTASKS} subtasks in {files_label(files)}")
        with generated_project(files, extent.folder, commits=1) as project:
            figures += await _figures_on(project, rounds)
    return figures


async def _figures_on(project: Project, rounds: int) -> list[Figure]:
    name = f"{SUBTASKS} subtasks of 1 s"
    runs = [FleetRun(project, kind, "plain") for kind in KINDS]
    figures = await _compare(name, script(project), runs, rounds, WANTED)
    if project.files == TINY:
        gated = [FleetRun(project, kind, "gated", GATE) for kind in KINDS]
        figures += await _compare(f"{name} and a gate", script(project, GATE), gated, rounds, WANTED_WITH_GATE)
    return figures


async def _compare(name: str, shell: Variant, runs: list["FleetRun"], rounds: int, wanted: Limits) -> list[Figure]:
    project = runs[0].project
    variants: dict[str, Variant] = {"git": shell, **{str(run.kind): run for run in runs}}
    costs: Costs = await interleave(variants, rounds, warm=0)
    figures = ratios(name, project.files, costs, wanted=wanted)
    for run in runs:
        landed = min(run.landed) if all(run.proven) else 0
        note = f"landed {run.landed}; linear history, every commit's tree passed: {all(run.proven)}"
        measure = f"{name.replace('subtasks ', '')}, {run.kind}: landed and proven"
        figures.append(Figure(measure, files_label(project.files), landed, wanted=SUBTASKS, at_least=True, note=note))
    return figures


@dataclass
class FleetRun:
    """Runs of fleet with one kind of lease on one project, and their results."""

    project: Project
    kind: LeaseKind
    label: str
    gate: str = ""
    count: int = SUBTASKS
    landed: list[int] = field(default_factory=list)
    proven: list[bool] = field(default_factory=list)

    async def __call__(self, number: int) -> Cost:
        return await to_thread.run_sync(self.go, f"{self.label}-{self.kind}-{number}")

    def command(self, home: Path) -> list[str]:  # noqa: ARG002 - for subclasses
        """Return the program of the run, without its arguments."""
        return [sys.executable, "-m", "fleet"]

    def go(self, run: str) -> Cost:
        """Carry out the run with this name."""
        home = self.project.folder / "runs" / run
        plan = self._prepare(home)
        environment = plain_environment() | {
            "HOME": str(home),
            "FLEET_STATE_DIR": str(home / "state"),
            "LANG": "C.UTF-8",
        }
        command = [*self.command(home), "run", "--plan", str(plan), "--name", run, "--yes"]
        command += ["--repo", str(self.project.repository), "--base-url", NO_SERVICE]
        folder = RunFolder(home / "state" / "runs" / run)
        with Stopwatch() as watch, (home / "output").open("wb") as output:  # clean-up counts for neither side
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
            with self.beside(folder):
                exit_code = process.wait()
        if exit_code:
            raise RuntimeError(f"exit code {exit_code}\n{(home / 'output').read_text()[-4000:]}")
        self._prove(folder)
        return watch.cost

    @contextmanager
    def beside(self, folder: RunFolder) -> Iterator[None]:  # noqa: ARG002 - for subclasses
        """Do something while the run is active."""
        yield

    def _prepare(self, home: Path) -> Path:
        """Write the operator's configuration and the plan into a home directory of this run. Returns the plan."""
        configuration = home / ".config" / "fleet" / "config.toml"
        configuration.parent.mkdir(parents=True)
        text = CONFIGURATION.format(count=self.count, lease=self.kind, gate=self.gate)
        configuration.write_text(text, encoding="utf-8")
        plan = home / "plan.json"
        plan.write_text(plan_file(self.count), encoding="utf-8")
        return plan

    def _prove(self, folder: RunFolder) -> None:
        """Check that history is linear, each commit was tested, and each tree holds everything that landed before."""
        state, base = folder.state(), self.project.commits[-1]
        range_ = f"{base}..refs/heads/{result_branch(folder.run)}"
        log = git(
            self.project.repository, "log", "--reverse", "--format=%H %(trailers:key=Fleet-Task,valueonly)", range_
        )
        commits = [line.split() for line in log.splitlines() if line]
        expected, proven = set[str](), not git(self.project.repository, "rev-list", "--min-parents=2", range_)
        for commit, subtask in commits:
            expected.add(f"done/{subtask}")
            files = git(self.project.repository, "ls-tree", "--name-only", commit, "done/").splitlines()
            proven = proven and set(files) == expected
        tested = commits_tested(state) == len(commits) == len(expected)
        self.landed.append(len(expected))
        self.proven.append(proven and tested and state.ending == "landed")


def script(project: Project, gate: str = ":") -> Variant:
    """The shell script, with plain git."""

    def turn(number: int) -> Cost:
        work = project.folder / f"script-{number}"
        work.mkdir()
        command = ["sh", "-c", SCRIPT, "sh", str(project.repository), str(work), f"{len(gate)}-{number}", gate]
        with Stopwatch() as watch:
            subprocess.run(command, env=plain_environment(), check=True, capture_output=True)
        if len(list(Path(work, "into", "done").iterdir())) != SUBTASKS:
            raise RuntimeError("the script did not land everything")
        subprocess.run(["rm", "-rf", str(work)], check=True)
        git(project.repository, "worktree", "prune")
        return watch.cost

    async def in_a_thread(number: int) -> Cost:
        return await to_thread.run_sync(turn, number)

    return in_a_thread
