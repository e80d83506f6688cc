"""Pictures of the web pages: every page, light and dark, on a phone and on a wide screen.

All pictures are written to `build/pictures`, and those shown in the documentation also to `docs/pictures`.
"""

import base64
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from dashboards.address import Address
from dashboards.web.access import WebAccess
from dashboards.web.site import serving
from fleet.core.facts.facts import Fact
from tests.dashboards.browser import Page, browser

PERSON = "ada"
QUALITY = 60  # of WebP
PATIENCE_S = 120.0
READING = "document.body.innerText.includes('Reading journals')"


@dataclass(frozen=True, slots=True)
class Look:
    """Size and color scheme of a picture."""

    width: int
    height: int
    dark: bool = False
    scale: float = 1.0


LOOKS: Mapping[str, Look] = {
    "light": Look(1280, 1000),
    "dark": Look(1280, 1000, dark=True),
    "phone": Look(390, 844),
    "wide": Look(2560, 1440, scale=0.5),
}
PATHS: Mapping[str, str] = {
    "board": "/",
    "inbox": "/inbox",
    "run": "/runs/textkit",
    "question": "/runs/textkit-asks",
    "subtasks": "/runs/textkit/subtasks",
    "subtask": "/runs/textkit-done/subtasks/roman",
    "plan": "/runs/textkit/plan",
    "replay": "/runs/textkit-done/replay?at=700",
    "report": "/runs/textkit-done/report",
    "access": "/access",
    "nothing": "/nowhere",
}
SHOWN: Mapping[str, tuple[str, str]] = {
    "web-board": ("board", "light"),
    "web-run": ("run", "light"),
    "web-run-dark": ("run", "dark"),
    "web-inbox-phone": ("inbox", "phone"),
    "web-subtask": ("subtask", "light"),
    "web-replay": ("replay", "dark"),
}
"""The pictures that the documentation shows, by their names."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The demo at several moments, each as a separate run."""

    moments: Mapping[str, Any]

    def names(self) -> Sequence[str]:
        return list(self.moments)

    def open(self, run: str) -> Any:
        return self.moments[run]


def renamed(facts: Sequence[tuple[int, Fact]], run: str) -> Sequence[tuple[int, Fact]]:
    """The facts of a run under another name."""
    names = {"run": run, "result_branch": f"fleet/{run}"}
    return [(seq, fact.model_copy(update=names) if hasattr(fact, "run") else fact) for seq, fact in facts]


async def capture_web(runs: Runs, at: float, scratch: Path, *, everything: Path, shown: Path) -> None:
    """Capture every page in every look. The clock stands at `at`."""
    access = WebAccess(scratch / "sessions.json", lambda: at)
    serves = serving(runs, access, Address("127.0.0.1", 0), lambda: at, PERSON, scrape=lambda _: (b"", "text/plain"))
    async with serves as server, browser(scratch) as page:
        await page.open(server.link("decide"))
        await _wait_read(page, f"http://{server.address}")
        for name, path in PATHS.items():
            for look, how in LOOKS.items():
                await page.looks(width=how.width, dark=how.dark)
                await page.open(f"http://{server.address}{path}")
                (everything / f"{name}-{look}.webp").write_bytes(await _picture(page, how))
    for name, (what, look) in SHOWN.items():
        shutil.copyfile(everything / f"{what}-{look}.webp", shown / f"{name}.webp")


async def _wait_read(page: Page, base: str) -> None:
    """Wait until the server has read all journals."""
    with anyio.fail_after(PATIENCE_S):
        await page.open(f"{base}/")
        while await page.evaluate(READING):  # noqa: ASYNC110 - the page has no event for us
            await anyio.sleep(0.1)


async def _picture(page: Page, look: Look) -> bytes:
    await page.call(
        "Emulation.setDeviceMetricsOverride",
        width=look.width,
        height=look.height,
        deviceScaleFactor=look.scale,
        mobile=False,
    )
    taken = await page.call("Page.captureScreenshot", format="webp", quality=QUALITY)
    return base64.b64decode(taken["data"])
