"""What the doctor says of `gh` and `glab`: it only looks, and none of it is a failure."""

from pathlib import Path

import pytest

from fleet.features.forge.program import forge_findings


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_each_program_is_looked_for_and_asked_whether_it_is_logged_in(tmp_path: Path) -> None:
    for name, code in (("gh", 0), ("glab", 1)):
        (tmp_path / name).write_text(f'#!/bin/sh\n[ "$*" = "auth status" ] && exit {code}\nexit 9\n')
        (tmp_path / name).chmod(0o755)
    gh, glab = await forge_findings({"PATH": str(tmp_path)})
    assert (gh.what, gh.ok, gh.fix) == ("gh", True, "")
    assert "logged in" in gh.says
    assert (glab.what, glab.state, glab.says, glab.fix) == ("glab", "warning", "not logged in", "glab auth login")


@pytest.mark.anyio
async def test_a_missing_program_comes_with_where_to_get_it(tmp_path: Path) -> None:
    findings = await forge_findings({"PATH": str(tmp_path)})
    assert [(each.what, each.ok) for each in findings] == [("gh", True), ("glab", True)]
    assert all("install it from https://" in each.fix for each in findings)
