"""Runs a case with a version of the prompts, in a child process with a separate state directory."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic

from dashboards.text.safe import safe
from evaluation.cases import Case, build_repository
from evaluation.stand_in import script_of
from evaluation.versions import Version
from fleet.core.state.state import RunState
from fleet.errors import FleetError
from fleet.runs.run_folder import RunFolder
from scripts.simulated import asked

RUN = "run"
KEY_NAME = "FLEET_EVALUATION_KEY"
NO_KEY = "no-key-is-needed"
LISTENING = "listening on "
ENDS = frozenset({0, 1, 4})
"""Exit codes of runs that ended by themselves: landed, not landed, budget."""
STOP_S, LOOK_S = 20.0, 0.5
LATE_S = 300.0  # after the minutes of a run, until it is stopped
TAIL = 600  # characters of a log that an error quotes
UNATTENDED = {"FLEET_LIMITS_ANSWER_WAIT_MINUTES": "0.2"}  # nobody answers
HURRY = {
    "FLEET_PLANNER_SETTLE_S": "0.1",
    "FLEET_LIMITS_ANSWER_WAIT_MINUTES": "0.02",
    "FLEET_LIMITS_BACKOFF_FIRST_S": "0.05",
}
"""Short waits where the model is a stand-in."""


@dataclass(frozen=True, slots=True)
class Service:
    """Address and key of the model service."""

    url: str | None = None
    """None: a stand-in on this machine."""
    key: str = NO_KEY
    config: Path | None = None
    """Models, efforts and rungs, in a configuration of the user's."""
    sandbox: str = "bubblewrap"

    @property
    def simulated(self) -> bool:
        return self.key == NO_KEY


@dataclass(frozen=True, slots=True)
class Order:
    """A run to make."""

    case: Case
    version: Version
    seed: int
    dollars: float
    """Maximum cost of the run."""
    minutes: float

    @property
    def name(self) -> str:
        return f"{self.case.name}-{self.version.digest}-{self.seed}"


@dataclass(frozen=True, slots=True)
class Played:
    """A run that has ended."""

    state: RunState
    repository: Path
    base: str
    state_folder: Path


def play(order: Order, service: Service, program: Path, folder: Path, stopping: Event) -> Played:
    """Run the case to its end. Raises `FleetError` if it could not run, or has to stop."""
    base = build_repository(order.case, folder / "repository")
    environment = environment_of(folder, service)
    epic, log = folder / "epic.md", folder / "run.log"
    epic.write_text(order.case.epic, encoding="utf-8")
    with _model(order, service, environment, folder) as url:
        arguments = ["run", str(epic), "--name", RUN, "--repo", str(folder / "repository"), "--yes", "--plain"]
        arguments += ["--budget", f"{order.dollars:g}", "--minutes", f"{order.minutes:g}"]
        arguments += ["--sandbox", service.sandbox, "--base-url", url] if url else ["--sandbox", service.sandbox]
        arguments += ["--config", str(service.config or _box(folder))]
        code = _run(arguments, environment, program, log, limit_s=order.minutes * 60 + LATE_S, stopping=stopping)
    if stopping.is_set():
        raise FleetError(f"run {order.name} was stopped")
    if code not in ENDS:
        raise FleetError(f"run {order.name} failed to start (exit code {code}): {_tail(log)}", hint=f"see {log}")
    return Played(RunFolder(folder / "state" / "runs" / RUN).state(), folder / "repository", base, folder / "state")


def environment_of(folder: Path, service: Service) -> dict[str, str]:
    """Return the environment of a child. Contains no user settings or keys, except the given key."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "FLEET_STATE_DIR": str(folder / "state"),
        "FLEET_MODELS_API_KEY_ENV": KEY_NAME,
        KEY_NAME: service.key,
        **(HURRY if service.simulated else UNATTENDED),
    }


def _box(folder: Path) -> Path:
    """A configuration that shows this Python in the box, where it is not the system's."""
    path, prefix = folder / "config.toml", Path(sys.base_prefix)
    shown = "" if prefix.is_relative_to("/usr") else f"read_only = [{json.dumps(str(prefix))}]\n"
    path.write_text(f"[box]\n{shown}path = [{json.dumps(str(prefix / 'bin'))}]\n", encoding="utf-8")
    return path


def box_config(service: Service, folder: Path) -> Path:
    """The configuration with which the checks of a run are repeated."""
    return service.config or _box(folder)


def _run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    program: Path,
    log: Path,
    *,
    limit_s: float,
    stopping: Event,
) -> int:
    """Return the exit code of a run. The run is stopped at its time limit, and when the evaluation stops."""
    until = monotonic() + limit_s
    with log.open("wb") as file:
        process = _start(arguments, environment, program, file.fileno())
        try:
            while monotonic() < until and not stopping.is_set():
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(LOOK_S)
            return -signal.SIGTERM
        finally:
            _stop(process)


def _start(
    arguments: Sequence[str], environment: Mapping[str, str], program: Path, out: int
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "fleet", *arguments],
        cwd=program,
        env={**environment, "PYTHONPATH": str(program)},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@contextmanager
def _model(order: Order, service: Service, environment: Mapping[str, str], folder: Path) -> Iterator[str | None]:
    """Yield the address of the model service: the given one, or that of a simulated model."""
    if not service.simulated:
        yield service.url
        return
    script = folder / "script.json"
    script.write_text(json.dumps(script_of(order.case, order.version.prompts, order.seed)), encoding="utf-8")
    reading, writing = os.pipe()
    try:
        process = _start(["simulate", str(script), "--port", "0"], environment, folder, writing)
    finally:
        os.close(writing)
    try:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            line = next((line for line in lines if LISTENING in line), "")
            if not line:
                raise FleetError("the simulated model did not start; run `fleet simulate` to see the error")
            url = line.rpartition(LISTENING)[2].strip()
            yield url
            if complaint := asked(url).complaint:
                raise FleetError(f"{order.name}: {complaint}")
    finally:
        _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop a process and its children. It is asked first, so that a run can release its resources."""
    for sent in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, sent)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue


def _tail(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    return safe(" ".join(text[-TAIL:].split()))
