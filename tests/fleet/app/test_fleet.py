"""What a run needs is checked once: by the process that creates it, or else by the one that resumes it."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from fleet.app.fleet import Fleet, Order
from fleet.config.load import load_config
from fleet.errors import FleetError
from fleet.runs.run_folder import RunFolder, all_runs
from tests.fleet.fakes import wait_until
from tests.worktrees.conftest import make_repository, path_without, record_git
from worktrees.target.target import inspect


def fleet_in(folder: Path) -> Fleet:
    flags = {"state.dir": str(folder / "state"), "models.base_url": "http://127.0.0.1:9"}
    return Fleet(load_config(environ={}, user_file=None, flags=flags), {})


async def begin(fleet: Fleet, folder: RunFolder) -> None:
    """Run it until its engine has started."""
    stop, lives = anyio.CancelScope(), folder.state().epoch
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(fleet.run, folder, stop=stop))
        await wait_until(lambda: folder.state().epoch > lives)
        stop.cancel()


@pytest.mark.anyio
async def test_the_repository_is_looked_at_once_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = make_repository(tmp_path / "project")
    log = record_git(tmp_path / "bin", monkeypatch)

    def questions() -> int:
        asked = log.read_text(encoding="utf-8")
        log.write_text("", encoding="utf-8")
        return asked.count("--path-format=absolute")

    await inspect(repository)
    once, fleet = questions(), fleet_in(tmp_path)
    folder = await fleet.create(Order(goal="Add a health endpoint", repository=repository))
    await begin(fleet, folder)
    assert questions() == once > 0
    await begin(fleet_in(tmp_path), folder)
    assert questions() == once, "another process knows nothing of what the first one saw"


@pytest.mark.anyio
async def test_without_bubblewrap_neither_a_new_nor_a_resumed_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "project")
    folder = await fleet_in(tmp_path).create(Order(goal="Add a health endpoint", repository=repository))
    monkeypatch.setenv("PATH", path_without("bwrap", tmp_path / "bin"))
    with pytest.raises(FleetError, match="apt-get install bubblewrap"):
        await fleet_in(tmp_path).run(folder, stop=anyio.CancelScope())
    with pytest.raises(FleetError, match="apt-get install bubblewrap"):
        await fleet_in(tmp_path).create(Order(goal="Another", repository=repository))
    assert [run.run for run in all_runs(tmp_path / "state")] == [folder.run]
