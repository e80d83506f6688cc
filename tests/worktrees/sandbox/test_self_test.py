"""The proof of the box finds nothing in a whole one, and names what is wrong with one that has a hole."""

import os

import pytest

from worktrees import box, mount
from worktrees.proof import prove
from worktrees.settings import HandSettings

HOLES = {
    "--unshare-pid": "a command shares a namespace with the machine",
    "--unshare-ipc": "a command shares a namespace with the machine",
    "--disable-userns": "a command can make namespaces of its own",
}


async def test_a_whole_box_is_proved(settings: HandSettings) -> None:
    assert await prove(settings) == ()


@pytest.mark.parametrize("option", HOLES)
async def test_a_box_with_a_hole_is_not(settings: HandSettings, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setattr(box, "filter_program", lambda: None)
    monkeypatch.setattr(box, "NAMESPACES", tuple(part for part in box.NAMESPACES if part != option))
    assert set(await prove(settings)) == {HOLES[option], "a command runs without the filter of system calls"}


async def test_settings_and_devices_of_the_machine_are_tried(
    settings: HandSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root of the host can reach them at all, so somebody else's box is whole without the defence."""
    monkeypatch.setattr(mount, "_closing", lambda: ())
    found = await prove(settings)
    assert set(found) <= {"a command can close the devices of the machine"}
    assert bool(found) == (os.geteuid() == 0)
