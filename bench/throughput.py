"""Commits per hour through the command line, if workers and checks take no time.

Runs the program as shipped, from start to end: a plan file, a hundred concurrent workers of the kind `command`,
sandboxes, checks before and after the work, landing commit by commit, the result branch. The remaining time is fleet's
own cost.
"""

import json
import subprocess
import sys
from pathlib import Path

from anyio import to_thread

from bench.hundred import NO_SERVICE
from bench.side_by_side import Extent, Project, Stopwatch, generated_project, git, plain_environment
from fleet.core.base.ids import RunId, result_branch
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, machine, progress

AT_ONCE, FILES, FOLDER = 100, 20, 100
WANTED = 90_000.0  # an hour, on two cores that do nothing else
RUN = RunId("throughput")
CONFIGURATION = f"""\
[run]
workers = {AT_ONCE}

[box]
commands = {AT_ONCE}

[workers.writes]
kind = "command"
description = "Writes its name into a file."
command = "sh -c 'mkdir -p \\"${{1%/*}}\\"; echo done >\\"$1\\"' sh {{parameters.file}}"
"""


async def throughput_figures(extent: Extent) -> list[Figure]:
    """Landed commits an hour of a wide run, and the processor time of each, children included."""
    return await to_thread.run_sync(_figures, extent)


def _figures(extent: Extent) -> list[Figure]:
    progress(f"throughput: {extent.wide:,} subtasks")
    with generated_project(FILES, extent.folder, commits=1) as project:
        home = _prepare(project, extent.wide)
        state = {"HOME": str(home), "FLEET_STATE_DIR": str(home / "state"), "LANG": "C.UTF-8"}
        command = [sys.executable, "-m", "fleet", "run", "--plan", str(home / "plan.json"), "--name", RUN, "--yes"]
        command += ["--repo", str(project.repository), "--base-url", NO_SERVICE]
        with Stopwatch() as watch, (home / "output").open("wb") as output:
            done = subprocess.run(command, env=plain_environment() | state, stdout=output, stderr=output, check=False)
        if done.returncode:
            raise RuntimeError(f"exit code {done.returncode}\n{(home / 'output').read_text()[-4000:]}")
        _prove(project, RunFolder(home / "state" / "runs" / RUN), extent.wide)
    cost = watch.cost.divided_by(extent.wide)
    where = f"{extent.wide:,} subtasks"
    return [
        Figure("landed commits an hour", where, 3_600_000 / cost.wall, wanted=WANTED, at_least=True, note=machine()),
        Figure("processor of a landed commit, ms", where, cost.processor, note="with all programs that it starts"),
    ]


def _prepare(project: Project, count: int) -> Path:
    """A home with the operator's configuration and the plan."""
    home = project.folder / "home"
    configuration = home / ".config" / "fleet" / "config.toml"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(CONFIGURATION, encoding="utf-8")
    subtasks = []
    for number in range(count):
        name, file = f"s{number:05}", f"done/{number // FOLDER:03}/s{number:05}"
        check = {"criterion": "it is there", "run": f"test -f {file}"}
        subtasks.append(
            {
                "id": name,
                "title": f"Write {name}",
                "goal": f"Write {file}.",
                "acceptance": [check],
                "worker": "writes",
                "parameters": {"file": file},
            }
        )
    (home / "plan.json").write_text(json.dumps({"goal": f"{count} files", "subtasks": subtasks}), encoding="utf-8")
    return home


def _prove(project: Project, folder: RunFolder, count: int) -> None:
    """Check that all landed, each as one commit of a linear history, and that the last tree holds all files."""
    range_ = f"{project.commits[-1]}..refs/heads/{result_branch(RUN)}"
    commits = git(project.repository, "rev-list", "--count", "--max-parents=1", range_)
    files = git(project.repository, "ls-tree", "-r", "--name-only", f"refs/heads/{result_branch(RUN)}", "done/")
    landed = (folder.state().ending, int(commits), len(files.splitlines()))
    if landed != ("landed", count, count):
        raise RuntimeError(f"not all of it landed: {landed}")
