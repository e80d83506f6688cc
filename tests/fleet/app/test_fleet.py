"""What a run needs is checked once: by the process that creates it, or else by the one that resumes it."""

from pathlib import Path

import anyio
import pytest

from fleet.app import fleet as app
from fleet.app.fleet import Fleet, Order
from fleet.config.load import load_config
from fleet.errors import FleetError
from fleet.runs.run_folder import RunFolder, all_runs
from tests.worktrees.conftest import make_repository


def fleet_in(folder: Path) -> Fleet:
    flags = {"state.dir": str(folder / "state"), "models.base_url": "http://127.0.0.1:9"}
    return Fleet(load_config(environ={}, user_file=None, flags=flags), {})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the set-up steps that were taken."""
    taken: list[str] = []
    for name in ("require_bubblewrap", "inspect"):
        real = getattr(app, name)

        def step(*args: object, name: str = name, real: object = real) -> object:
            taken.append(name)
            assert callable(real)
            return real(*args)

        monkeypatch.setattr(app, name, step)
    return taken


async def begin(fleet: Fleet, folder: RunFolder) -> None:
    """Run it until its first lease would be made."""
    stop = anyio.CancelScope()
    stop.cancel()
    await fleet.run(folder, stop=stop)


@pytest.mark.anyio
async def test_set_up_is_derived_once_a_run(tmp_path: Path, calls: list[str]) -> None:
    fleet = fleet_in(tmp_path)
    order = Order(goal="Add a health endpoint", repository=make_repository(tmp_path / "project"))
    folder = await fleet.create(order)
    await begin(fleet, folder)
    assert sorted(calls) == ["inspect", "require_bubblewrap"]
    calls.clear()
    await begin(fleet_in(tmp_path), folder)
    assert sorted(calls) == ["inspect", "require_bubblewrap"], "another process knows nothing of the first one's checks"


@pytest.mark.anyio
async def test_without_bubblewrap_neither_a_new_nor_a_resumed_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "project")
    folder = await fleet_in(tmp_path).create(Order(goal="Add a health endpoint", repository=repository))
    monkeypatch.setattr(
        "worktrees.sandbox.box.shutil.which", lambda name: None if name == "bwrap" else f"/usr/bin/{name}"
    )
    with pytest.raises(FleetError, match="apt-get install bubblewrap"):
        await begin(fleet_in(tmp_path), folder)
    with pytest.raises(FleetError, match="apt-get install bubblewrap"):
        await fleet_in(tmp_path).create(Order(goal="Another", repository=repository))
    assert [run.run for run in all_runs(tmp_path / "state")] == [folder.run]
