"""The budget of a landed subtask: the manager's time by step, the sandboxes by step, and the floor below both.

`python -m bench hundred --profile` prints it. py-spy samples the manager from outside. The floor is measured beside it:
the same commands in bare sandboxes on all processors, started by `xargs` and nothing else.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter

from bench.hundred import GATE, SUBTASKS, TINY, FleetRun
from bench.side_by_side import Extent, Stopwatch, generated_project
from fleet.errors import FleetError
from fleet.runs.run_folder import RunFolder
from scripts.frame import progress, say
from worktrees.sandbox.checks import log_stem

RATE = 500  # samples a second
START = "start"
LOOP = "event loop and engine"
STEPS: tuple[tuple[str, str], ...] = (
    (r"\(fleet/runs/journal\.py", "journal"),
    (r"work_and_follow|\(dashboards/text/|\(fleet/read/", "screen"),
    (r"\(fleet/core/(policy|history|state)/", "decisions and state"),
    (r"^Leases\.lease |\(worktrees/leases/(overlay|pool)\.py", "lease"),
    (r"^WorktreeLease\.commit |\(worktrees/leases/commit\.py", "commit"),
    (r"^Attempts\.check_before_work ", "checks before the work"),
    (r"^ThisMachine\._work ", "the worker's command"),
    (r"^Attempts\.verify ", "checks after the work"),
    (r"^Lander\._run_checks ", "checks of merged trees, with the gate"),
    (r"^Lander\.", "merge and move the branch"),
    (r"^Performer\._publish ", "publish"),
    (r"_find_and_load|import_module", START),
    (r"^Engine\.|run_forever", LOOP),
    (r"^WorkerThread\.run ", "threads"),
)
"""The step of a sample: the first row that matches a frame, from the innermost frame outwards."""
IDLE = re.compile(r"^(Condition\.wait|EpollSelector\.select|Queue\.get) ")
BARE = (
    *("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
    *("--tmpfs", "/tmp", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"),  # noqa: S108 - inside the sandbox
    *("--setenv", "PYTHONPYCACHEPREFIX", "/tmp/cache"),  # noqa: S108 - each gate compiles again, as in a new worktree
)


class Profiled(FleetRun):
    """A run that py-spy samples."""

    def command(self, home: Path) -> list[str]:
        return [*self.sampler("raw", home / "samples"), *super().command(home)]

    @staticmethod
    def sampler(form: str, file: Path) -> list[str]:
        program = shutil.which("py-spy")
        if program is None:
            raise FleetError("--profile requires py-spy", hint="pip install py-spy")
        return [program, "record", "--rate", str(RATE), "--format", form, "--output", str(file), "--"]


def show_budget(extent: Extent) -> None:
    """Print the budget of a run of a hundred subtasks with a gate."""
    with generated_project(TINY, extent.folder, commits=1) as project:
        progress("a run without a sampler")
        plain = FleetRun(project, "overlay", "plain", GATE)
        with Stopwatch() as watch:
            plain.go("plain-overlay-0")
        progress("the same with py-spy")
        sampled = Profiled(project, "overlay", "sampled", GATE)
        sampled.go("sampled-overlay-0")
        home = project.folder / "runs" / "sampled-overlay-0"
        progress("the floor")
        boxes = dict(_boxes(RunFolder(home / "state" / "runs" / "sampled-overlay-0")))
        floor = _floor_s(project.repository, boxes)
        say(*_manager_lines((home / "samples").read_text().splitlines()))
        say("", f"{'sandboxes per landed subtask':<44}{'number':>8}")
        say(*(f"  {name:<42}{count / SUBTASKS:>8.2f}" for name, count in boxes.items()))
        wall = watch.cost.wall / 1e3
        say("", f"floor {floor:.2f} s, measured {wall:.2f} s: {wall / floor:.2f} times the floor")


def _manager_lines(samples: Iterable[str]) -> Iterator[str]:
    steps = Counter[str]()
    for sample in samples:
        stack, _, number = sample.rpartition(" ")
        frames = stack.split(";")
        if not IDLE.match(frames[-1]):
            steps[_step(frames)] += int(number)
    yield f"{'manager, per landed subtask':<44}{'ms':>8}{'share':>8}"
    for name, count in steps.most_common():
        yield f"  {name:<42}{1000 * count / RATE / SUBTASKS:>8.2f}{count / steps.total():>8.0%}"
    yield f"  {'in all':<42}{1000 * steps.total() / RATE / SUBTASKS:>8.2f}"


def _step(frames: Sequence[str]) -> str:
    for frame in reversed(frames):
        for pattern, step in STEPS:
            if re.search(pattern, frame):
                return step
    return START


def _boxes(folder: RunFolder) -> Iterator[tuple[str, int]]:
    """The number of sandboxes that were made. Each check has a log, which is named after its command."""
    logs = [path.name for path in (folder.path / "checks").iterdir()]
    gates = sum(log_stem("", GATE) in name for name in logs)
    yield "workers", sum(len(subtask.attempts) for subtask in folder.state().subtasks.values())
    yield "checks", len(logs) - gates
    yield "gate", gates


def _floor_s(repository: Path, boxes: dict[str, int]) -> float:
    """The time that the same commands take in bare sandboxes, and the second that each worker sleeps, once."""
    quick, gate = boxes["workers"] + boxes["checks"], boxes["gate"]
    lines = ["test -d src"] * quick + [GATE] * gate
    box = [*BARE, "--bind", str(repository), "/tmp/repo", "--chdir", "/tmp/repo"]  # noqa: S108 - inside the sandbox
    started = perf_counter()
    subprocess.run(
        ["xargs", "-d", "\n", "-P", str(os.cpu_count()), "-I", "{}", *box, "sh", "-c", "{}"],
        input="\n".join(lines).encode(),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return perf_counter() - started + 1.0
