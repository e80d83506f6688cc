"""Nodes over real SSH on one machine: the test suites for a pipe, and `fleet nodes` as a user runs it.

    python -m chaos.over_ssh             a server on loopback; `openssh-server` is needed, root is not
    python -m chaos.over_ssh person      the person alone

No user settings are used: keys, known hosts and configurations are created and removed at the end.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.nodes import PATIENCE_S, Trial
from chaos.ssh_server import ssh_server
from scripts.frame import Figure, Table, add_names, command_line, exit_with, progress, temporary_folder

SUITES: dict[str, tuple[str, ...]] = {
    "the contract of nodes": ("tests/fleet/features/nodes/test_host.py", "-k", "command"),
    "runs": ("tests/e2e/test_nodes.py",),
    "runs that call models": ("tests/e2e/test_node_models.py",),
    "a probe": ("tests/fleet/features/nodes/test_node_care.py", "-k", "keeps_nothing"),
}
"""Tests that take `--ssh`."""
SUBTASKS, WORKERS = 8, 2
BROKEN: dict[str, tuple[str, str]] = {
    "stranger": ("-o UserKnownHostsFile=/dev/null {host} fleet node --stdio", "Host key verification failed"),
    "locked": ("-o PubkeyAuthentication=no {host} fleet node --stdio", "Permission denied"),
    "closed": ("-p 1 {host} fleet node --stdio", "Connection refused"),
    "bare": ("{host} fleet-is-not-here node --stdio", "not found"),
    "chatty": ("{host} echo Welcome", "the node's command did not start `fleet node --stdio`"),
}
"""Possible problems of a machine reached over SSH, and the expected message of `fleet nodes`."""


def suites(folder: Path, table: Table) -> None:
    with ssh_server(folder) as ssh:
        for name, arguments in SUITES.items():
            progress(f"{name}, over SSH")
            argv = [sys.executable, "-m", "pytest", "-q", "-m", "", *arguments, "--ssh", ssh]
            code = subprocess.run(argv, stdout=sys.stderr, check=False).returncode
            table.add(Figure(f"exit code of the tests: {name}", "SSH", code, wanted=0))


@dataclass(frozen=True)
class Person:
    """Someone who uses `fleet nodes` in a terminal."""

    trial: Trial
    config: Path

    def fleet(self, *words: str) -> tuple[int, str]:
        """Return the exit code and the output of a command."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.trial.folder), "LANG": "C.UTF-8"}
        env |= {"PYTHONPATH": str(Path.cwd()), "FLEET_STATE_DIR": str(self.trial.folder / "state")}
        argv = [sys.executable, "-m", "fleet", *words]
        done = subprocess.run(argv, cwd=self.trial.repository, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def with_config(self, *words: str) -> tuple[int, str]:
        return self.fleet(*words, "--config", str(self.config))

    def nodes(self) -> dict[str, Any]:
        """Return the output of `fleet nodes`, by name."""
        return {each["name"]: each for each in json.loads(self.with_config("nodes", "--json")[1])}


def person(folder: Path, table: Table) -> None:
    """List, check, drain while a run works, and clean."""
    trial = Trial(folder, tuple(f"s{number}" for number in range(SUBTASKS)))
    trial.make()
    with ssh_server(folder) as ssh:
        found = _scene(trial, ssh)
    for what, wrong in found.items():
        table.add(Figure(what, "SSH", len(wrong), wanted=0), details=tuple(wrong))


def _scene(trial: Trial, ssh: str) -> dict[str, list[str]]:
    """Return violations by user action."""
    folder, state = trial.folder, trial.folder / "builder"
    (folder / "builder.toml").write_text(f'[state]\ndir = "{state}"\n', encoding="utf-8")
    node = f"{shlex.quote(sys.executable)} -m fleet node --stdio --config {folder}/builder.toml"
    *client, host = shlex.split(ssh)
    able = _table("builder", f"{ssh} {node}", f"workers = {WORKERS}")
    words = {name: line.format(host=host) for name, (line, _) in BROKEN.items()}
    tables = able + "".join(_table(name, f"{shlex.join(client)} {line}") for name, line in words.items())
    user = Person(trial, folder / "all.toml")
    user.config.write_text(tables, encoding="utf-8")
    progress("a person lists the nodes, and checks one")
    views = user.nodes()
    found = {
        "lists a node that answers": [] if views["builder"]["ok"] else [str(views["builder"])],
        "lists what is wrong with others": [
            f"{name}: {views[name]}"
            for name, (_, why) in BROKEN.items()
            if views[name]["ok"] or why not in views[name]["problem"] or name not in views[name]["fix"]
        ],
    }
    found["checks it"] = _unless(user.with_config("nodes", "check", "builder"), 0, "ran a check in a sandbox")
    found["checks one that is locked"] = _unless(user.with_config("nodes", "check", "locked"), 3, "Permission denied")
    progress("a person drains a node while a run works")
    found |= _drain(user, able)
    progress("a person cleans it")
    held = user.nodes()["builder"]
    found["finds a cache there"] = [] if held["repositories"] == 1 else [str(held)]
    found["cleans it"] = _unless(user.with_config("nodes", "clean", "builder"), 0, "MB freed")
    left = [str(path) for path in state.glob("node/*/*")]
    found["nothing is left"] = left if user.nodes()["builder"]["repositories"] == 0 else ["a cache", *left]
    return found


def _drain(user: Person, able: str) -> dict[str, list[str]]:
    """Drain a node: it finishes its work and accepts no new work."""
    trial = user.trial
    process = trial.start("nodes", able, WORKERS + 1)
    trial.wait(lambda: trial.works("builder"), "the node works", process)
    drained = _unless(user.fleet("nodes", "drain", "builder", "--run", "nodes"), 0, "node builder gets nothing new")
    trial.wait(_is_drained(trial), "the run knows that it is drained", process)
    trial.wait(lambda: not trial.works("builder"), "what it has ends there", process)
    begun = _attempts(trial)
    listed = user.nodes()["builder"]["in_run"]
    code = process.wait(PATIENCE_S)
    return {
        "drains it": [*drained, *([] if listed == "drained" else [f"it is listed as {listed}"])],
        "the run ends well": [] if code == 0 else [trial.log("nodes")[-2000:]],
        "it gets nothing new": [] if _attempts(trial) == begun else [f"{begun}, then {_attempts(trial)}"],
    }


def _is_drained(trial: Trial) -> Callable[[], bool]:
    return lambda: bool(trial.state("nodes").nodes["builder"].drained_by)


def _attempts(trial: Trial) -> int:
    """Return the number of attempts started on the node."""
    subtasks = trial.state("nodes").subtasks.values()
    return sum(attempt.node == "builder" for each in subtasks for attempt in each.attempts)


def _unless(done: tuple[int, str], code: int, says: str) -> list[str]:
    """Return the output of a command unless it ended as expected with the expected message."""
    return [] if done[0] == code and says in done[1] else [f"exit code {done[0]}: {done[1]}"]


def _table(name: str, command: str, *more: str) -> str:
    return "\n".join((f"[nodes.{name}]", f"command = {json.dumps(command)}", *more, ""))


SCENES: dict[str, Callable[[Path, Table], None]] = {"suites": suites, "person": person}


def main() -> int:
    parser = command_line("chaos.over_ssh", __doc__)
    add_names(parser, "SCENE", SCENES)
    args = parser.parse_args()
    table = Table("nodes over SSH on loopback")
    for name in args.names or SCENES:
        with temporary_folder() as folder:
            SCENES[name](folder, table)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
