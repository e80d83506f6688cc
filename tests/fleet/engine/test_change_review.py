"""What a review of a change leaves to a person."""

from tests.fleet.core.story import plan_of
from tests.fleet.core.verdicts.test_oddities import patch
from tests.fleet.fakes import FakeFleet


async def test_a_run_lands_it_and_warns() -> None:
    fleet = FakeFleet(plan_of("a"))
    fleet.worktrees.patch = lambda *_: patch("lib.py", "def __eq__(s, o): return True")
    state = await fleet.run()
    assert state.ending == "landed"
    assert state.warnings == ("for review: a: lib.py compares equal to everything",)


async def test_a_change_that_only_removes_lines_lands() -> None:
    fleet = FakeFleet(plan_of("a"))
    removal = "diff --git a/lib.py b/lib.py\n--- a/lib.py\n+++ b/lib.py\n@@ -1,2 +1 @@\n-gone\n kept\n"
    fleet.worktrees.patch = lambda *_: removal
    state = await fleet.run()
    assert (state.ending, state.warnings, state.attempts) == ("landed", (), 1)
