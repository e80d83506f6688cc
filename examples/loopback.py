"""Shared by the examples: a server on loopback that answers in text, for as long as a scene lasts."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class TextHandler(BaseHTTPRequestHandler):
    """A handler that answers in text, without a log: the fleet reports what it requested."""

    def answer(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name in the library
        """Nothing is logged."""


@contextmanager
def on_loopback(handler: type[TextHandler]) -> Iterator[str]:
    """The host and port at which the handler answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
