"""The test of the sandbox finds no problem in a sound box, and names the holes of others."""

import os

import pytest

from worktrees.base.settings import WorktreeSettings
from worktrees.sandbox import box, overlay_mount
from worktrees.sandbox.self_test import find_sandbox_problems

HOLES = {
    "--unshare-pid": "a command shares a namespace with the machine",
    "--unshare-ipc": "a command shares a namespace with the machine",
    "--disable-userns": "a command can make namespaces of its own",
}


async def test_a_box_without_a_hole_has_no_problems(settings: WorktreeSettings) -> None:
    assert await find_sandbox_problems(settings) == ()


@pytest.mark.parametrize("option", HOLES)
async def test_a_hole_in_the_box_is_found(
    settings: WorktreeSettings, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(box, "filter_program", lambda: None)
    monkeypatch.setattr(box, "NAMESPACES", tuple(part for part in box.NAMESPACES if part != option))
    problems = set(await find_sandbox_problems(settings))
    assert problems == {HOLES[option], "a command runs without the filter of system calls"}


async def test_open_devices_of_the_machine_are_found(
    settings: WorktreeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root of the host can change them at all, so for other users the box is sound without the defence."""
    monkeypatch.setattr(overlay_mount, "_owns_devices", lambda: False)
    problems = await find_sandbox_problems(settings)
    assert set(problems) <= {"a command can close the devices of the machine"}
    assert bool(problems) == (os.geteuid() == 0)
