"""What the tests of the terminal UI stand on: an application over runs in memory, and its screen as text."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dashboards.terminal.app import FleetApp
from fleet.core.plan import Plan
from fleet.core.policy import Policy
from tests.core.story import Story, plan_of
from tests.dashboards.feeds import Shelf, Told

Program = Callable[[Sequence[str], Path | None], int]


class Clock:
    now = 60.0

    def __call__(self) -> float:
        return self.now


def story(policy: Policy | None = None, plan: Plan | None = None) -> Story:
    told = Story(
        policy or Policy(workers=8, max_attempts=1),
        plan or plan_of("schema", "store needs schema", "api", "docs", "cli"),
    )
    told.landed("schema")
    told.attempt_fails("docs")
    told.work_is_done("api")
    return told


def app_of(*feeds: Told, speed: float | None = None, program: Program | None = None) -> FleetApp:
    given: dict[str, Any] = {} if program is None else {"program": program}
    return FleetApp(Shelf(feeds), feeds[0].run, user="ada", clock=Clock(), speed=speed, **given)


def rows(app: FleetApp) -> list[str]:
    """The screen, as text."""
    width, height = app.size
    return ["".join(segment.text for segment in strip).rstrip() for strip in app.screen._compositor.render_strips()][
        :height
    ] or [" " * width]


def screen(app: FleetApp) -> str:
    return "\n".join(rows(app))
