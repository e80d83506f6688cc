"""A run with a node in a container: `podman run -i` with the image of the Containerfile, with no network.

    make container                                   builds the image first
    python -m chaos.container --podman podman

The boxes of its workers have to hold inside of the container, or the node refuses to work.
"""

import shlex
from json import dumps
from pathlib import Path

from chaos.nodes import Trial, run
from scripts.frame import Figure, Table, command_line, exit_with, temporary_folder

OPTIONS = "--network none --security-opt seccomp=unconfined --security-opt unmask=ALL"
PATIENCE_S = 600.0


def trial(folder: Path, podman: str, more: str, table: Table) -> None:
    there = Trial(folder, tuple(f"s{number}" for number in range(4)))
    there.make()
    command = f"{podman} run --rm -i {OPTIONS} {more} fleet-node"
    code = there.start("nodes", f"[nodes.container]\ncommand = {dumps(command)}\nworkers = 4\n", 4).wait(PATIENCE_S)
    there.start("here", "", 4).wait(PATIENCE_S)
    if code:
        raise SystemExit(there.log("nodes")[-3000:])
    attempts = [attempt for each in there.state("nodes").subtasks.values() for attempt in each.attempts]
    left = run(*shlex.split(podman), "ps", "--quiet", "--filter", "ancestor=fleet-node").split()
    is_same = there.tree("nodes") == there.tree("here")
    table.add(
        Figure("subtasks that landed", "a container", len(set(there.landed("nodes"))), wanted=4, at_least=True),
        Figure(
            "attempts in the container",
            "a container",
            sum(a.node == "container" for a in attempts),
            wanted=1,
            at_least=True,
        ),
        Figure("the tree differs from that of a run here", "a container", int(not is_same), wanted=0),
        Figure("containers left", "a container", len(left), wanted=0),
    )


def main() -> int:
    parser = command_line("chaos.container", __doc__)
    parser.add_argument("--podman", default="podman")
    parser.add_argument("--more", default="", help="further options of `podman run`")
    args = parser.parse_args()
    table = Table("a run with a node in a container")
    with temporary_folder() as folder:
        trial(folder, args.podman, args.more, table)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
