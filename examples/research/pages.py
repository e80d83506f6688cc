"""The web pages of this example, on loopback: existing pages, missing pages, and one that is busy at first."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from examples.loopback import TextHandler, on_loopback

PAGES = {
    "/rain.json": '{"north": [10, 20, 30], "south": [5, 5, 5]}\n',
    "/mirror/people.csv": "north,2\nsouth,1\n",
    "/search/alpha": "Alpha Ltd: hosting for small teams. From 9 a month, says a review of last year.\n",
    "/search/beta": "Beta Inc: hosting for everyone. See /beta/pricing.\n",
    "/beta/pricing": "Beta Inc: 12 a month.\n",
}
BUSY = {"/rain.json": 1}
"""Number of times that a page reports a busy server."""
CLOSED = {"/people.json": "401: contract required"}


@contextmanager
def served() -> Iterator[str]:
    """The host and port of the pages, for as long as the block lasts."""
    asked: Counter[str] = Counter()

    class Interface(TextHandler):
        def do_GET(self) -> None:  # noqa: N802 - its name in the library
            asked[self.path] += 1
            if asked[self.path] <= BUSY.get(self.path, 0):
                self.answer(503, "busy; try again later\n")
            elif self.path in CLOSED:
                self.answer(401, f"{CLOSED[self.path]}\n")
            elif self.path in PAGES:
                self.answer(200, PAGES[self.path])
            else:
                self.answer(404, "page not found\n")

    with on_loopback(Interface) as address:
        yield address
