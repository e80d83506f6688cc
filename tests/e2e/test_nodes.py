"""Runs whose attempts and checks are done by nodes, each `fleet node --stdio` with a disk of its own.

They are behind a pipe, or reached over SSH (`--ssh`, in `make nodes`).
"""

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.core.state.state import RunState
from tests.e2e.node_folder import NodeFolder
from tests.e2e.stage import Done, Stage, landed, program, subtask, untouched, wait_for
from tests.fleet.core.pretend import subtask_of
from tests.worktrees.conftest import git

NO_SERVICE = "http://127.0.0.1:9"
WRITES = 'printf \'%s\\n\' "$1" >"$1.txt"'


@dataclass(frozen=True)
class NodeAt(NodeFolder):
    """A node behind a pipe, whose workers see its gate."""

    ssh: str = ""
    """The command line that runs another one on it; empty: it is behind a pipe."""

    def make(self, *, starts: int = 9) -> None:
        """Write its configuration: its boxes show the gate, and the path of it is in `GATE`."""
        self.gate.mkdir(parents=True)
        (self.home / "node.toml").write_text(
            f'[state]\ndir = "{self.state}"\n'
            f'[box]\nread_only = ["{self.gate}"]\nenvironment = {{GATE = "{self.gate}"}}\n'
        )
        (self.home / "start").write_text(
            f'echo $$ >>"{self.home}/pids"\n[ $(wc -l <"{self.home}/pids") -le {starts} ] || exit 1\n'
            f"exec {shlex.quote(sys.executable)} -m fleet node --stdio --config {self.home}/node.toml\n"
        )

    def table(self, *, workers: int = 2, checks: int = 2, lease_s: float = 20.0, more: str = "") -> str:
        command = f"{self.ssh} sh {self.home}/start".lstrip()
        return (
            f"[nodes.{self.name}]\ncommand = {json.dumps(command)}\nworkers = {workers}\nchecks = {checks}\n"
            f"lease_s = {lease_s}\n{more}\n"
        )

    def kill(self) -> None:
        """End it with all that it runs, as a power cut would."""
        os.killpg(self.pids[-1], signal.SIGKILL)

    def has_left_nothing(self) -> None:
        """No process, no worktree, no report: only its cache."""
        wait_for(lambda: not any(map(program, self.pids)))
        assert self.reports == []
        assert self.worktrees == []


@pytest.fixture
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[NodeAt, NodeAt]]:
    ssh = request.config.getoption("--ssh")
    pair = NodeAt("one", tmp_path / "one", ssh), NodeAt("two", tmp_path / "two", ssh)
    yield pair
    for pid in (pid for node in pair for pid in node.pids if program(pid)):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def asked(
    stage: Stage, tables: str, *ids: str, worker: str = WRITES, name: str = "r", labels: Sequence[str] = ()
) -> tuple[str, ...]:
    """The command line of a run whose worker is a script."""
    command = f"sh -c {shlex.quote(worker)} sh {{id}}"
    config, plan = stage.room / f"{name}.toml", stage.room / f"{name}.json"
    config.write_text(f'[workers.step]\nkind = "command"\ncommand = {json.dumps(command)}\n{tables}')
    plan.write_text(
        json.dumps({"goal": "steps", "subtasks": [subtask(id_, worker="step", labels=list(labels)) for id_ in ids]})
    )
    return ("run", "--plan", str(plan), "--name", name, "--config", str(config), "--base-url", NO_SERVICE)


def state_of(stage: Stage, run: str = "r") -> RunState:
    state = stage.look(run)
    assert state is not None
    return state


def worked_on(stage: Stage) -> dict[str, list[str]]:
    """The node of each attempt, in order."""
    return {id_: [attempt.node for attempt in each.attempts] for id_, each in state_of(stage).subtasks.items()}


def test_nodes_do_the_work_and_the_checks_and_the_result_is_the_same(
    stage: Stage, repository: Path, nodes: tuple[NodeAt, NodeAt]
) -> None:
    ids = [f"s{number}" for number in range(5)]
    for node in nodes:
        node.make()
    tables = "".join(node.table(workers=3) for node in nodes)
    with untouched(repository):
        stage.fleet(*asked(stage, tables, *ids), at=repository).ended(0)
        stage.fleet(*asked(stage, "", *ids, name="here"), at=repository).ended(0)
    assert sorted(landed(repository, "r")) == ids
    assert git(repository, "rev-parse", "fleet/r^{tree}") == git(repository, "rev-parse", "fleet/here^{tree}")
    assert {name for names in worked_on(stage).values() for name in names} == {"one", "two"}
    attempts = [subtask_of(state_of(stage), id_).attempts for id_ in ids]
    assert [len(each) for each in attempts] == [1] * len(ids)
    checks = [check for [attempt] in attempts for check in attempt.checks if check.node]
    assert {check.node for check in checks} <= {"one", "two"}
    assert checks
    logs = [(stage.folder("r").path / check.log).read_text() for check in checks]
    assert [log.splitlines()[:2] for log in logs] == [
        [f"[on node {check.node}]", f"$ {check.command}"] for check in checks
    ]
    assert stage.fleet("logs", "s0", "--run", "r").ended(0).output
    stage.fleet("audit", "r").ended(0)
    for node in nodes:
        node.has_left_nothing()


def test_the_work_of_a_node_that_is_killed_is_done_elsewhere_and_costs_no_attempt(
    stage: Stage, repository: Path, nodes: tuple[NodeAt, NodeAt]
) -> None:
    """The first node's worker waits for a gate that never opens; the second one's opens when both work."""
    slow, quick = nodes
    slow.make(starts=1)
    quick.make()
    waits = f'while ! [ -e "$GATE/open" ]; do sleep 0.1; done; {WRITES}'
    tables = slow.table(workers=4, checks=0) + quick.table(workers=1, checks=0)
    with stage.going(*asked(stage, tables, "a", "b", worker=waits), at=repository) as going:
        stage.wait("r", lambda state: _begun(state) == 2, going)
        (quick.gate / "open").touch()
        slow.kill()
        done: Done = going.done().ended(0)
    done.says("node one is unavailable", "lost node one during the attempt")
    assert sorted(landed(repository, "r")) == ["a", "b"]
    state = state_of(stage)
    assert [subtask_of(state, id_).counted for id_ in ("a", "b")] == [0, 0]
    assert sorted(worked_on(stage).values()) in ([["one", "two"], ["two"]], [["one", "two"], ["one", "two"]])
    quick.has_left_nothing()


def _begun(state: RunState) -> int:
    return sum(bool(each.attempts) and each.attempts[-1].working for each in state.subtasks.values())


@pytest.mark.thorough
def test_a_node_is_drained_and_another_added_while_a_run_works(
    stage: Stage, repository: Path, nodes: tuple[NodeAt, NodeAt]
) -> None:
    """Both subtasks need a label. The drained node keeps the one that it works on; the other waits for the new node."""
    first, second = nodes
    first.make()
    second.make()
    (second.gate / "open").touch()
    waits = f'while ! [ -e "$GATE/open" ]; do sleep 0.1; done; {WRITES}'
    able = 'labels = ["gpu"]\nlands = true'
    arguments = asked(stage, first.table(workers=1, more=able), "a", "b", worker=waits, labels=["gpu"])
    with stage.going(*arguments, at=repository) as going:
        stage.wait("r", lambda state: _begun(state) == 1, going)
        [begun] = [id_ for id_, names in worked_on(stage).items() if names == ["one"]]
        stage.fleet("nodes", "drain", "one", "--run", "r").ended(0).says("draining node one")
        stage.fleet("nodes", "add", "two", "--run", "r").ended(2).says("unknown node: 'two'")
        with (stage.room / "r.toml").open("a") as file:
            file.write(second.table(workers=1, more=able))
        stage.fleet("nodes", "add", "two", "--run", "r").ended(0)
        stage.wait("r", lambda state: any(each.landed for each in state.subtasks.values()), going)
        status = json.loads(stage.fleet("status", "r", "--json").ended(0).output)
        assert [(node["name"], node["status"]) for node in status["nodes"]] == [
            ("one", "drained"),
            ("two", "connected"),
        ]
        (first.gate / "open").touch()
        going.done().ended(0).says("node one drained by", "node two added by", "node two connected")
    [other] = {"a", "b"} - {begun}
    assert worked_on(stage) == {begun: ["one"], other: ["two"]}
    for node in nodes:
        node.has_left_nothing()


def test_the_first_node_is_added_while_a_run_works(
    stage: Stage, repository: Path, nodes: tuple[NodeAt, NodeAt]
) -> None:
    node, here = nodes
    node.make()
    here.make()
    (node.gate / "open").touch()
    waits = f'while ! [ -e "$GATE/open" ]; do sleep 0.1; done; {WRITES}'
    shown = f'[run]\nworkers = 1\n[box]\nread_only = ["{here.gate}"]\nenvironment = {{GATE = "{here.gate}"}}\n'
    with stage.going(*asked(stage, shown, "a", "b", worker=waits), at=repository) as going:
        stage.wait("r", lambda state: _begun(state) == 1, going)
        [begun] = [id_ for id_, names in worked_on(stage).items() if names == [""]]
        with (stage.room / "r.toml").open("a") as file:
            file.write(node.table(workers=1))
        stage.fleet("nodes", "add", "one", "--run", "r").ended(0)
        stage.wait("r", lambda state: "one" in state.nodes and not state.nodes["one"].out, going)
        (here.gate / "open").touch()
        going.done().ended(0).says("node one added by", "node one connected")
    [other] = {"a", "b"} - {begun}
    assert worked_on(stage) == {begun: [""], other: ["one"]}
    node.has_left_nothing()


@pytest.mark.thorough
def test_what_a_node_finished_while_the_manager_was_dead_is_fetched_and_not_done_again(
    stage: Stage, repository: Path, nodes: tuple[NodeAt, NodeAt]
) -> None:
    node, _ = nodes
    node.make()
    waits = f'while ! [ -e "$GATE/open" ]; do sleep 0.1; done; {WRITES}'
    tables = node.table(workers=1, checks=0)
    with stage.going(*asked(stage, tables, "a", worker=waits), at=repository) as going:
        stage.wait("r", lambda state: _begun(state) == 1, going)
        going.kill()
        (node.gate / "open").touch()
        wait_for(lambda: node.reports)
    (node.gate / "open").unlink()  # who did the work again would wait for ever
    stage.fleet("resume", "r", at=repository).ended(0)
    assert landed(repository, "r") == ["a"]
    assert worked_on(stage) == {"a": ["one"]}
    node.has_left_nothing()


def test_a_node_that_can_not_be_used_is_named_and_the_run_goes_on_without_it(stage: Stage, repository: Path) -> None:
    tables = (
        "[nodes.gone]\ncommand = \"sh -c 'echo no route to host >&2; exit 255'\"\n"
        '[nodes.other]\ncommand = "cat /etc/hostname"\n[nodes.none]\ncommand = "/no/such/program"\n'
    )
    done = stage.fleet(*asked(stage, tables, "a"), at=repository).ended(0)
    done.says("node gone is unavailable", "no route to host", "node other is unavailable", "node none is unavailable")
    assert worked_on(stage) == {"a": [""]}
