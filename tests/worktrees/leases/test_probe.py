"""How the kind of lease is chosen, and that it needs no rights."""

import os
import warnings
from pathlib import Path

import anyio
import pytest

from fleet.errors import FleetError
from tests.settings import with_values
from tests.worktrees.conftest import OpenBench, product_settings
from worktrees.base.settings import WorktreeSettings
from worktrees.leases.overlay import choose_kind

OTHER_USER = 65_534


async def test_overlays_are_chosen_where_they_work_and_leave_no_trace(
    settings: WorktreeSettings, tmp_path: Path
) -> None:
    folder = tmp_path / "odd, name: with \\ all 'sorts'"
    assert (await choose_kind(settings, folder)).kind == "overlay"
    assert list(folder.iterdir()) == []


async def test_the_configuration_can_ask_for_the_pool(settings: WorktreeSettings, tmp_path: Path) -> None:
    assert (await choose_kind(with_values(settings, {"lease": "pool"}), tmp_path)).kind == "pool"


async def test_without_a_sandbox_there_are_no_overlays(settings: WorktreeSettings, tmp_path: Path) -> None:
    chosen = await choose_kind(with_values(settings, {"sandbox": "none"}), tmp_path)
    assert (chosen.kind, "sandbox" in chosen.why) == ("pool", True)
    with pytest.raises(FleetError, match='"auto" or "pool"'):
        await choose_kind(with_values(settings, {"sandbox": "none", "lease": "overlay"}), tmp_path)


async def test_where_mounting_fails_the_pool_is_chosen_and_the_reason_given(
    settings: WorktreeSettings, tmp_path: Path
) -> None:
    chosen = await choose_kind(settings, tmp_path / "state", options="no_such_option")
    assert chosen.kind == "pool"
    assert "mount: " in chosen.why
    with pytest.raises(FleetError, match="mount: "):
        await choose_kind(with_values(settings, {"lease": "overlay"}), tmp_path / "state", options="no_such_option")


async def test_a_state_folder_with_an_odd_name_leases_overlays(open_bench: OpenBench, tmp_path: Path) -> None:
    async with open_bench(state_dir=tmp_path / "a,b:c d\\e") as bench, bench.worktrees.lease(bench.base) as lease:
        assert bench.worktrees.leases.overlays is not None
        assert (await lease.workspace.run("cat README.md", timeout_s=60)).output == "hello\n"


def test_an_ordinary_user_gets_overlays_too(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    if os.geteuid() == 0:
        tmp_path.chmod(0o755)
        os.chown(state, OTHER_USER, OTHER_USER)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()  # not a new interpreter: other users may not be allowed to read this one
    if child == 0:
        try:
            (state / "answer").write_text(choose_as_other_user(state), encoding="utf-8")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (state / "answer").read_text(
        encoding="utf-8"
    ) == "overlay, tested: fleet finds changes, and the shared files stay unchanged"


def choose_as_other_user(state: Path) -> str:
    """In a process of its own, which belongs to `nobody` from now on."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(OTHER_USER, OTHER_USER, OTHER_USER)
        os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
    os.chdir("/")
    chosen = anyio.run(choose_kind, product_settings(state), state)
    return f"{chosen.kind}, {chosen.why}"
