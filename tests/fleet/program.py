"""The command line as a program of its own: in a pipe, on a terminal, on a run that another process left."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.e2e.warm import can_be_warm, end_of_fleet
from tests.fleet.core.story import Story, plan_of
from tests.fleet.processes import LIMIT_S, clean_environment


def fleet(*arguments: str, cwd: Path, program: Sequence[str] = (), **more: str) -> subprocess.CompletedProcess[str]:
    """A verb to its end; with a `program`, in an interpreter of its own."""
    environment = clean_environment(FLEET_STATE_DIR=str(cwd / "state"), XDG_CONFIG_HOME=str(cwd / "config"), **more)
    warm = {**environment, "LANG": "C.UTF-8"}
    del warm["PYTHONSAFEPATH"]
    if not program and can_be_warm(warm):
        return end_of_fleet(*arguments, cwd=cwd, environment=warm, limit_s=LIMIT_S)
    return subprocess.run(
        [sys.executable, *(program or ("-m", "fleet")), *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def left_run(tmp_path: Path) -> RunFolder:
    """A run with a question and a failure, as another process left it."""
    folder = RunFolder(tmp_path / "state" / "runs" / "shop-1")
    story = Story(plan=plan_of("api", "docs", failure_action="ask"))
    story.attempt_fails("api")
    story.landed("docs")
    first = story.facts[0].model_copy(update={"run": "shop-1", "goal": "A shop [bold]\x1b]52;c;eA==\x07"})
    with Journal.create(folder.journal) as journal:
        journal.append([f.FACT.validate_python(first.model_dump()), *story.facts[1:]])
    return folder


def on_a_terminal(cwd: Path, arguments: list[str], *, typed: str = "", **more: str) -> str:
    """What a verb writes to a terminal at which someone types this."""
    leader, follower = os.openpty()
    environment = clean_environment(**{"FLEET_STATE_DIR": str(cwd / "state"), **more})
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "fleet", *arguments],
            cwd=cwd,
            env=environment,
            stdin=follower,
            stdout=follower,
            stderr=follower,
        ) as process:
            os.close(follower)
            os.write(leader, typed.encode())
            said = b""
            while chunk := _read(leader):
                said += chunk
            process.wait(timeout=LIMIT_S)
    finally:
        os.close(leader)
    return said.decode()


def _read(terminal: int) -> bytes:
    """The next bytes, or none when nobody has the other end any more."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
