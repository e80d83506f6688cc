"""What a person is shown before a result is taken: added lines that could turn the tests that run them."""

import pytest

from fleet.review import oddities
from tests.core.story import plan_of
from tests.fleet.fakes import FakeFleet


def patch(path: str, *added: str) -> str:
    lines = "\n".join(f"+{line}" for line in added)
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1,{len(added)} @@\n{lines}\n"


@pytest.mark.parametrize(
    ("added", "what"),
    [
        (("import os", "os._exit(0)"), "ends the process that tests it"),
        (("class E:", "    def __eq__(s, o): return True"), "is equal to everything"),
        (("class E:", "    def __eq__(self, other):", "        return True"), "is equal to everything"),
        (("import _pytest.runner",), "reaches into the test runner"),
        (("open('/proc/1/mem', 'wb')",), "reaches into the test runner"),
    ],
)
def test_a_known_way_to_cheat_is_named_with_its_file(added: tuple[str, ...], what: str) -> None:
    assert oddities(patch("lib.py", *added)) == (("lib.py", what),)


def test_honest_work_and_tests_are_not_named() -> None:
    honest = patch("lib.py", "def __eq__(self, other):", "    return self.x == other.x", "def add(a, b): return a + b")
    assert oddities(honest + patch("tests/test_a.py", "import pytest", "os._exit(0)")) == ()


def test_what_is_taken_away_is_not_named() -> None:
    assert oddities(patch("lib.py", "x = 1") + "-os._exit(0)\n") == ()


async def test_a_run_lands_it_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FakeFleet(plan_of("a"))

    async def diff(base: str, commit: str) -> str:
        del base, commit
        return patch("lib.py", "def __eq__(s, o): return True")

    monkeypatch.setattr(fleet.worktrees, "diff", diff)
    state = await fleet.run()
    assert state.ending == "landed"
    assert state.warnings == ("for review: a: lib.py is equal to everything",)
