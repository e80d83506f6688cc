"""What a review of a change leaves to a person."""

import pytest

from tests.fleet.core.story import plan_of
from tests.fleet.core.verdicts.test_oddities import patch
from tests.fleet.fakes import FakeFleet


async def test_a_run_lands_it_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FakeFleet(plan_of("a"))

    async def diff(base: str, commit: str) -> str:
        del base, commit
        return patch("lib.py", "def __eq__(s, o): return True")

    monkeypatch.setattr(fleet.worktrees, "diff", diff)
    state = await fleet.run()
    assert state.ending == "landed"
    assert state.warnings == ("for review: a: lib.py is equal to everything",)


async def test_a_change_that_only_removes_lines_lands(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FakeFleet(plan_of("a"))

    async def diff(base: str, commit: str) -> str:
        del base, commit
        return "diff --git a/lib.py b/lib.py\n--- a/lib.py\n+++ b/lib.py\n@@ -1,2 +1 @@\n-gone\n kept\n"

    monkeypatch.setattr(fleet.worktrees, "diff", diff)
    state = await fleet.run()
    assert (state.ending, state.warnings, state.attempts) == ("landed", (), 1)
