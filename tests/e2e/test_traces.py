"""A run that sends its trace while it works, and the same trace printed afterwards."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from tests.e2e.conftest import Serve
from tests.e2e.stage import Json, Stage, script, subtask


@contextmanager
def collecting() -> Iterator[tuple[str, list[Any]]]:
    """A collector's address, and the spans that it got."""
    spans = list[Any]()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            document: Json = json.loads(self.rfile.read(int(self.headers["content-length"])))
            spans.extend(spans_in(document))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def spans_in(document: Json) -> list[Any]:
    return [span for each in document["resourceSpans"] for scope in each["scopeSpans"] for span in scope["spans"]]


def test_a_run_sends_its_trace_to_its_end_and_prints_the_same(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("one"), subtask("two", "one")))
    with collecting() as (collector, got):
        run = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
        stage.fleet(*run, "--otlp", collector).ended(0).says("LANDED")
        printed = spans_in(stage.fleet("trace", "r", "--json").ended(0).json)
        assert sorted(span["spanId"] for span in got) == sorted(span["spanId"] for span in printed)
        assert len({span["spanId"] for span in got}) == len(got)
        [root] = [span for span in got if "parentSpanId" not in span]
        assert root["name"] == "invoke_workflow r"
        assert {"invoke_agent planner", "invoke_agent one", "invoke_agent two", "land"} <= {
            span["name"] for span in got
        }
        stage.fleet("trace", "r").ended(0).says("invoke_workflow r", "  invoke_agent one  (")
        stage.fleet("trace", "r", "--otlp", collector).ended(0).says(f"{len(printed)} spans sent")
    stage.fleet("trace", "r", "--otlp", collector).ended(3).says("can't connect to the OTLP collector")
    stage.fleet("trace", "r", "--otlp", "collector").ended(2).says("not the URL of an OTLP collector")
