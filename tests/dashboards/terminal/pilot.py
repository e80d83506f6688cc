"""The application over runs in memory, and its screen as text."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dashboards.terminal.app import FleetApp
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Plan
from tests.dashboards.feeds import MemoryFeed, MemoryLibrary
from tests.fleet.core.story import Story, plan_of

PATCH = """diff --git a/api.py b/api.py
--- a/api.py
+++ b/api.py
@@ -1 +1,2 @@
-x = 1
+def run() -> None:
+    return "yes"  # now
"""
Program = Callable[[Sequence[str], Path | None], int]


class Clock:
    now = 60.0

    def __call__(self) -> float:
        return self.now


def story(policy: Policy | None = None, plan: Plan | None = None) -> Story:
    run = Story(
        policy or Policy(workers=8, max_attempts=1),
        plan or plan_of("schema", "store needs schema", "api", "docs", "cli"),
    )
    run.landed("schema")
    run.attempt_fails("docs")
    run.work_is_done("api")
    return run


class PilotedApp(FleetApp):
    """Without a terminal: there is none to give away, and its bell is counted."""

    rung = 0

    @contextmanager
    def suspend(self) -> Iterator[None]:
        yield

    def bell(self) -> None:
        self.rung += 1


def app_of(*feeds: MemoryFeed, program: Program | None = None, **more: Any) -> PilotedApp:
    more |= {} if program is None else {"program": program}
    return PilotedApp(MemoryLibrary(feeds), feeds[0].run, user="ada", clock=Clock(), **more)


def rows(app: FleetApp) -> list[str]:
    """The screen, as text."""
    width, height = app.size
    return ["".join(segment.text for segment in strip).rstrip() for strip in app.screen._compositor.render_strips()][
        :height
    ] or [" " * width]


def screen(app: FleetApp) -> str:
    return "\n".join(rows(app))
