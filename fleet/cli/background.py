"""An engine in a process of its own, that no terminal can take along: started with the configuration it was given.

    python -m fleet.cli.background RUN-FOLDER     the configuration, as JSON, on standard input

What it has to say goes to `engine.log` in the run's folder; what happens goes to the journal, as always.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import CancelScope, create_task_group
from pydantic import BaseModel

from fleet.errors import FleetError
from fleet.settings import Config

if TYPE_CHECKING:
    from fleet.app import Fleet
    from fleet.folders import RunFolder

LOG = "engine.log"
TAIL = 2_000  # characters of its last words
BEGIN_S, LOOK_S = 30.0, 0.05
STOPS = (signal.SIGINT, signal.SIGTERM)


class Given(BaseModel):
    """The configuration, and where each value of it comes from."""

    config: Config
    origin: dict[str, str]


class Background:
    """The process that works on a run, as its starter sees it."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, fleet: Fleet) -> None:
        """Raises `FleetError` where the process can't be started."""
        config = Given(config=fleet.config, origin=fleet.loaded.origin).model_dump_json().encode()
        command = [sys.executable, "-P", "-m", "fleet.cli.background", str(self._folder.path)]
        try:
            with (self._folder.path / LOG).open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd="/"
                )
            if self._process.stdin is not None:
                with self._process.stdin as given:
                    given.write(config)
        except OSError as error:
            raise FleetError(f"the engine can't be started: {error.strerror}") from error

    @property
    def at_work(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_begun(self) -> None:
        """Until it works on the run; raises `FleetError` with its words where it does not come to that."""
        until = time.monotonic() + BEGIN_S
        while time.monotonic() < until and self.at_work and not self._folder.alive:
            time.sleep(LOOK_S)
        if not self.at_work and (said := self.last_words()):
            raise FleetError(said)

    def last_words(self) -> str:
        """What it said before it failed; empty where it did not."""
        if self._process is None or self._process.poll() in {None, 0}:
            return ""
        try:
            said = (self._folder.path / LOG).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return said.strip()[-TAIL:]


async def work(fleet: Fleet, folder: RunFolder) -> None:
    """Until the run has ended or is drained. A terminal that is closed is no reason to stop."""
    from fleet.cli.conduct import listen, metrics

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = CancelScope()
    with metrics(fleet, folder) as exporter:
        async with create_task_group() as sides:
            sides.start_soon(listen, folder, stop, STOPS)
            if exporter is not None:
                sides.start_soon(exporter.watch_loop)
            await fleet.run(folder, stop=stop, watcher=exporter)
            sides.cancel_scope.cancel()


def main() -> int:
    from fleet.app import Fleet
    from fleet.cli.common import run_async
    from fleet.config import Loaded
    from fleet.environment import current
    from fleet.folders import RunFolder

    folder = RunFolder(Path(sys.argv[1]))
    given = Given.model_validate_json(sys.stdin.buffer.read())
    fleet = Fleet(Loaded(config=given.config, origin=given.origin), current())
    try:
        run_async(lambda: work(fleet, folder))
    except FleetError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
