"""A run on faulty nodes with separate directories, and its expected result."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.nodes import Host
from fleet.core.state.state import RunState
from tests.e2e.node_folder import NodeFolder
from tests.e2e.stage import Going, Stage, landed, program, subtask, wait_for
from tests.worktrees.conftest import git, make_repository

ROOT = Path(__file__).parents[1]
RUN = "r"
NO_SERVICE = "http://127.0.0.1:9"
SUBTASKS = 6
LEASE_S = 4.0
PATIENCE_S = 180.0
RETRIES = 40
"""Of an attempt: a subtask may meet every liar."""
WRITES = 'printf \'%s\\n\' "$1" >"$1.txt"'
WAITS = f'while ! [ -e "$GATE/open" ]; do sleep 0.1; done; {WRITES}'
BRISK = {"FLEET_LIMITS_BACKOFF_FIRST_S": "0.05", "FLEET_LIMITS_BACKOFF_CAP_S": "0.3"}
SLOW_S, SLOW_BITS = 0.2, 1_000_000
STRUCK, WELL = "struck", "well"


@dataclass(frozen=True)
class NodeAt(NodeFolder):
    """A node that may be faulty. Its workers wait until its gate is open."""

    lie: str = ""
    """Empty: it is honest."""
    host: Host | None = None
    """SSH host of the node. None: a pipe."""
    slow: bool = False
    """Whether its link is slow."""
    program: tuple[str, ...] = ()
    """Replacement of `fleet` on the node. Empty: the program itself."""

    def make(self, *, gate: str = "") -> None:
        """Write the node's configuration. Without a gate, it gets a separate closed gate."""
        at = gate or str(self.gate)
        for folder in (Path(at), self.state, self.home / "temporary"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.home / "node.toml").write_text(
            f'[state]\ndir = "{self.state}"\n[box]\nread_only = ["{at}"]\nenvironment = {{GATE = "{at}"}}\n'
        )
        node = ["chaos.node_lies", self.lie] if self.lie else ["fleet", "node", "--stdio"]
        run = (*self.program, *node[1:]) if self.program else (sys.executable, "-B", "-m", *node)
        command = shlex.join((*run, "--config", f"{self.home}/node.toml"))
        (self.home / "start").write_text(
            f"echo $$ >>{self.home}/pids\nTMPDIR={self.home}/temporary PYTHONPATH={ROOT} exec {command}\n"
        )

    def open_gate(self) -> None:
        (self.gate / "open").touch()

    def table(self, *, workers: int = 3, checks: int = 2) -> str:
        start = f"sh {self.home}/start"
        command = self.host.over_ssh(start) if self.host is not None else start
        if self.slow:
            command = f"{shlex.quote(sys.executable)} -B -m chaos.slow_link {SLOW_S} {SLOW_BITS} {command}"
        slots = f"workers = {workers}\nchecks = {checks}\nlease_s = {LEASE_S}\n"
        return f"[nodes.{self.name}]\ncommand = {json.dumps(command)}\n{slots}"

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.pids[-1], number)

    def left(self) -> Iterator[str]:
        """Return the files on the node other than its cache, once its processes have ended.

        The next process removes the files of a killed one.
        """
        wait_for(lambda: not any(map(program, self.pids)))
        yield from (f"{path} is left" for path in self.reports)
        yield from (f"{path} is left" for path in self.worktrees)
        yield from (f"{path} is left" for path in self.state.glob("node/stores/*/new-*"))
        yield from (f"{path} is left" for path in (self.home / "temporary").iterdir())
        yield from (f"{path} is left" for path in self.state.glob("node/temporary/*"))
        for store in self.state.glob("node/stores/*/fleet.git"):
            refs = git(store, "for-each-ref", "--format=%(refname)").split()
            yield from (f"{ref} is left" for ref in refs if not ref.startswith("refs/fleet/cache/"))


@dataclass(frozen=True)
class Scene:
    """A run on nodes."""

    folder: Path
    stage: Stage
    nodes: Sequence[NodeAt]

    @property
    def struck(self) -> NodeAt:
        return self.nodes[0]

    @property
    def repository(self) -> Path:
        return self.folder / "work"

    @property
    def state(self) -> RunState:
        state = self.stage.look(RUN)
        assert state is not None, "the run did not begin"
        return state

    def wait_until_it_works(self, going: Going) -> None:
        """Wait until the struck node works on an attempt."""

        def works(state: RunState) -> bool:
            last = [each.attempts[-1] for each in state.subtasks.values() if each.attempts]
            return any(attempt.working and attempt.node == self.struck.name for attempt in last)

        self.stage.wait(RUN, works, going)

    def wait_until_it_is_out(self, going: Going, why: str = "") -> None:
        wait_for(lambda: f"node {self.struck.name} is unavailable: {why}" in going.output, going)


def set_scene(folder: Path, nodes: Sequence[NodeAt]) -> Scene:
    (folder / "temporary").mkdir()
    make_repository(folder / "work", {"README.md": "hello\n"})
    return Scene(folder, Stage(folder, more={**BRISK, "TMPDIR": str(folder / "temporary")}), nodes)


def command_line_of(
    scene: Scene,
    tables: str,
    worker: str,
    subtasks: int,
    *,
    workers: int = SUBTASKS,
    service: str = NO_SERVICE,
    name: str = RUN,
) -> tuple[str, ...]:
    config, plan = scene.folder / "run.toml", scene.folder / "plan.json"
    command = f"sh -c {shlex.quote(worker)} sh {{id}}"
    gate = scene.folder / "gate"  # of this machine, which is always open
    gate.mkdir(exist_ok=True)
    (gate / "open").touch()
    config.write_text(
        f'[box]\nread_only = ["{gate}"]\nenvironment = {{GATE = "{gate}"}}\n[limits]\nretries = {RETRIES}\n'
        f'[workers.step]\nkind = "command"\ncommand = {json.dumps(command)}\n{tables}'
    )
    ids = [f"s{number}" for number in range(subtasks)]
    plan.write_text(json.dumps({"goal": "steps", "subtasks": [subtask(id_, worker="step") for id_ in ids]}))
    options = ("--name", name, "--config", str(config), "--workers", str(workers), "--base-url", service)
    return ("run", "--plan", str(plan), *options)


def ended(scene: Scene, going: Going) -> tuple[int, str]:
    """The exit code and the output of a run, resumed if it was killed."""
    try:
        code = going.process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the run did not end:\n{going.output}") from None
    if code != -signal.SIGKILL:
        return code, going.output
    with scene.stage.going("resume", RUN, at=scene.repository) as again:
        code = again.process.wait(PATIENCE_S)
        return code, going.output + again.output


def wrong(scene: Scene, code: int, output: str) -> Iterator[str]:
    """Return violations after a run."""
    if code != 0 or "Traceback" in output:
        yield f"exit code {code}:\n{output[-2000:]}"
        return
    subtasks = scene.state.subtasks
    if sorted(landed(scene.repository, RUN)) != sorted(subtasks):
        yield f"landed: {landed(scene.repository, RUN)}"
    tree = git(scene.repository, "ls-tree", "-r", "--format=%(path)", f"fleet/{RUN}").split()
    if sorted(tree) != sorted(["README.md", *(f"{id_}.txt" for id_ in subtasks)]):
        yield f"the tree has {tree}"
    for id_ in subtasks:
        if git(scene.repository, "show", f"fleet/{RUN}:{id_}.txt") != id_:
            yield f"{id_}.txt has another content"
    yield from _left_here(scene)


def _left_here(scene: Scene) -> Iterator[str]:
    """Return the files that the run has left on the manager's machine."""
    scene.stage.nothing_is_alive(RUN)
    yield from (f"{path} is left" for path in (scene.folder / "temporary").iterdir())
    yield from (f"{path} is left" for path in scene.stage.state.glob("stores/*/new-*"))
    mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    small_disk = str(scene.struck.state)
    yield from (
        f"mount {line} is left" for line in mounts if str(scene.folder) in line and line.split()[1] != small_disk
    )
    for store in scene.stage.state.glob("stores/*/fleet.git"):
        refs = git(store, "for-each-ref", "--format=%(refname)").split()
        yield from (f"{ref} is left" for ref in refs if not ref.startswith("refs/fleet/"))


def end(scene: Scene) -> None:
    for pid in [pid for node in scene.nodes for pid in node.pids if program(pid)]:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
