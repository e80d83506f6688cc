"""The pages beside a run end with it, and not before."""

from dataclasses import dataclass, field
from typing import Any

from dashboards.web import verbs
from dashboards.web.verbs import wait_over


@dataclass
class Looks:
    """A run folder whose engine is seen at work, or not, at each look."""

    alive_at: list[bool]
    slept: list[float] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.alive_at.pop(0)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_pages_wait_for_their_engine_outlive_it_a_moment_and_end() -> None:
    folder: Any = Looks([False, True, True, False])
    await wait_over(folder, pause=folder.sleep)
    assert folder.alive_at == []
    assert folder.slept == [verbs.POLL_S] * 3 + [verbs.LAST_S]


async def test_pages_of_a_run_that_never_begins_end_too() -> None:
    folder: Any = Looks([False])
    await wait_over(folder, start_s=0.0, pause=folder.sleep)
    assert folder.slept == [verbs.LAST_S]
