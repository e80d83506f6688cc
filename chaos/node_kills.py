"""Kills the manager or a node with SIGKILL at each point of an order, resumes the run, and checks the result.

    python -m chaos.node_kills                    each point once, on both sides
    python -m chaos.node_kills manager            one side only

An order is sent, accepted, executed, reported, received, acknowledged and deleted. After a kill at any of these points,
each subtask lands once, no attempt is used up, and both sides keep only caches. If the run ends without the report of a
killed node, the report stays until `fleet nodes clean` removes it.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from chaos.kill import result
from chaos.node_scene import (
    PATIENCE_S,
    ROOT,
    RUN,
    STRUCK,
    WRITES,
    NodeAt,
    Scene,
    command_line_of,
    end,
    set_scene,
    wrong,
)
from scripts.frame import Table, add_names, command_line, exit_with, progress, temporary_folder
from tests.e2e.stage import Done

SUBTASKS = 3
AFTERWARDS = "after"
POINTS: dict[str, tuple[str, ...]] = {
    "manager": (
        "an order is about to be given",
        "an order was given",
        "an object of a node is in the store, and the others may not be",
        "a commit is about to be pinned",
        "a commit is pinned",
        "a report is about to be acknowledged",
        "a report is acknowledged",
    ),
    "node": (
        "a node has taken an order",
        "a worktree is leased",
        "a command runs",
        "a commit is pinned",
        "a node has written a report, and not in its place",
        "a node keeps a report",
        "a node forgets an order",
    ),
}
NUMBERS = (1,)
"""Which occurrences of a point are tried."""


def kill_at(side: str, point: str, number: int, folder: Path) -> list[str]:
    """Kill one side once at this point. Returns the violations."""
    folder.mkdir(parents=True)
    marker = folder / "killed"
    killed = [sys.executable, "-B", "-m", "chaos.killed_at", point, str(number), str(marker)]
    node = NodeAt(STRUCK, folder / STRUCK, program=tuple(killed) if side == "node" else ())
    node.make()
    node.open_gate()
    scene = set_scene(folder, (node,))
    command = command_line_of(scene, node.table(workers=SUBTASKS, checks=0), WRITES, SUBTASKS)
    with ExitStack() as stack:
        stack.callback(end, scene)
        done = _run(scene, [*killed, *command] if side == "manager" else [sys.executable, "-m", "fleet", *command])
        if not marker.exists():
            return ["the point was never reached"]
        if done.code == -signal.SIGKILL:
            done = _run(scene, [sys.executable, "-m", "fleet", "resume", RUN])
        after = command_line_of(scene, node.table(workers=SUBTASKS, checks=0), WRITES, 1, name=AFTERWARDS)
        violations = list(_violations(scene, done))
        _run(scene, [sys.executable, "-m", "fleet", *after]).ended(
            0
        )  # what a killed process left, the next one removes
        return [*violations, *(line for line in node.left() if side == "manager" or ".report" not in line)]


def _run(scene: Scene, command: list[str]) -> Done:
    environment = scene.stage.environment | {"PYTHONPATH": str(ROOT)}
    finished = subprocess.run(
        command, cwd=scene.repository, env=environment, capture_output=True, timeout=PATIENCE_S, check=False
    )
    return Done(" ".join(command), finished.returncode, finished.stdout.decode(), finished.stderr.decode())


def _violations(scene: Scene, done: Done) -> Iterator[str]:
    yield from wrong(scene, done.code, done.output)
    for id_, subtask in scene.state.subtasks.items():
        if subtask.counted:
            yield f"{subtask.counted} attempts at {id_} are used up"


def main() -> int:
    parser = command_line("chaos.node_kills", __doc__)
    add_names(parser, "SIDE", POINTS)
    args = parser.parse_args()
    table = Table("invariants after SIGKILL within an order")
    with temporary_folder() as folder:
        for side in args.names or POINTS:
            found = list[tuple[str, str]]()
            for place, point in enumerate(POINTS[side]):
                progress(f"{side}: {point}")
                for number in NUMBERS:
                    try:
                        lines = kill_at(side, point, number, folder / f"{side}-{place}-{number}")
                    except (AssertionError, subprocess.TimeoutExpired) as error:
                        lines = [str(error)[-2000:]]
                    found += [(f"{point}, {number}", line) for line in lines]
            where = f"{len(POINTS[side]) * len(NUMBERS)} points"
            row = result(f"the {side} killed within an order", where, "of the points of an order", found)
            table.add(row.figure, details=row.details)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
