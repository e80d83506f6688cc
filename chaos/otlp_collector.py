"""A run sends its trace to a real OpenTelemetry collector: in parts across a kill, then completely, twice.

    make collector                                   installs it first
    python -m chaos.otlp_collector --tools .collector

The collector is Rotel, which is distributed as a wheel. It reads our JSON and forwards it as protobuf. The result is
decoded with the official messages and compared with the output of `fleet trace --json`.
"""

import gzip
import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from socket import create_connection
from threading import Thread
from typing import Any

from anyio.from_thread import start_blocking_portal

from chaos.ray_cluster import free_port
from fleet.core.base.ids import SubtaskId
from fleet.core.state.state import RunState
from scripts.frame import Figure, Table, command_line, exit_with, temporary_folder
from tests.e2e.conftest import served
from tests.e2e.stage import PATIENCE_S, Stage, script, subtask, wait_for
from tests.worktrees.conftest import make_repository

RUN, WHERE = "traced", "Rotel"
IDS = ("traceId", "spanId", "parentSpanId")
SLOW = {"think_s": 0.4, "jitter": 0.0}


@dataclass
class Passed:
    """Spans forwarded by a collector."""

    services: set[str] = field(default_factory=set)
    spans: list[dict[str, Any]] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        request = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2").ExportTraceServiceRequest()
        request.ParseFromString(body)
        document = import_module("google.protobuf.json_format").MessageToDict(request, use_integers_for_enums=True)
        for resource in document["resourceSpans"]:
            about = {each["key"]: each["value"] for each in resource["resource"]["attributes"]}
            self.services.add(about["service.name"]["stringValue"])
            self.spans += [plain(span) for scope in resource["scopeSpans"] for span in scope["spans"]]


def plain(span: dict[str, Any]) -> dict[str, Any]:
    """A span as `fleet trace --json` has it: protobuf's own JSON has ids in base 64."""
    ids = {name: b64decode(span[name]).hex() for name in IDS if span.get(name)}
    return {name: value for name, value in (span | ids).items() if value}


def text(span: dict[str, Any]) -> str:
    """A span to compare. Rotel's reader of JSON may change the last bit of a number with many digits."""
    return json.dumps(json.loads(json.dumps(span), parse_float=lambda digits: f"{float(digits):.12g}"), sort_keys=True)


@contextmanager
def collector(tools: Path, folder: Path) -> Iterator[tuple[str, Passed]]:
    """Yield the address of a collector, and the spans that it forwards."""
    passed = Passed()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            passed.take(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.daemon_threads = False
    Thread(target=server.serve_forever).start()
    port, folder = free_port(), folder / "collector"
    folder.mkdir(exist_ok=True)
    command = [str(tools / "rotel" / "rotel-agent"), "start", "--otlp-http-endpoint", f"127.0.0.1:{port}"]
    command += ["--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}", "--exporter", "otlp"]
    command += ["--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint"]
    command += [f"http://127.0.0.1:{server.server_address[1]}", "--pid-file", str(folder / "pid")]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env={}, stdout=log, stderr=log)
    try:
        wait_for(lambda: _listens(port))
        yield f"http://127.0.0.1:{port}", passed
        process.terminate()  # it passes on what it still has
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
        server.shutdown()
        server.server_close()


def _listens(port: int) -> bool:
    with suppress(OSError), create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def trial(folder: Path, tools: Path, table: Table) -> None:
    stage, repository = Stage(folder), make_repository(folder / "work", {"README.md": "hello\n"})
    plan = [subtask("one"), subtask("two", "one"), subtask("three", "two")]
    with start_blocking_portal() as portal, served(portal) as model:
        run = ("run", "Write", "--name", RUN, "--base-url", model(script(*plan, pace=SLOW)), "--repo", str(repository))
        with collector(tools, folder) as (url, in_parts):
            with stage.going(*run, "--yes", "--otlp", url) as going:
                stage.wait(RUN, has_landed_one, going)
                wait_for(lambda: in_parts.spans, going)
                going.kill()
            before = len(in_parts.spans)
            stage.fleet("resume", RUN, "--yes", at=repository).ended(0)
    table.add(Figure("spans passed on before the kill", WHERE, before, wanted=1, at_least=True))
    printed = stage.fleet("trace", RUN, "--json", at=repository).ended(0).json
    wanted = [span for each in printed["resourceSpans"] for scope in each["scopeSpans"] for span in scope["spans"]]
    compare("in parts, through a kill", in_parts, wanted, 0, table)
    with collector(tools, folder) as (url, whole):
        stage.fleet("trace", RUN, "--otlp", url, at=repository).ended(0)
    compare("whole", whole, wanted, 1, table)
    with collector(tools, folder) as (url, twice):
        for _ in range(2):
            stage.fleet("trace", RUN, "--otlp", url, at=repository).ended(0)
    compare("twice", twice, wanted, 2, table)


def has_landed_one(state: RunState) -> bool:
    one = state.subtasks.get(SubtaskId("one"))
    return one is not None and one.landed is not None


def compare(how: str, passed: Passed, wanted: Sequence[dict[str, Any]], copies: int, table: Table) -> None:
    """Compare received spans with printed ones, this many times. 0: a kill may repeat the last ones."""
    ids = {span["spanId"] for span in passed.spans}
    texts, right = {text(span) for span in passed.spans}, {text(span) for span in wanted}
    orphans = sum("parentSpanId" in span and span["parentSpanId"] not in ids for span in passed.spans)
    table.add(
        Figure(f"{how}: spans, by their ids", WHERE, len(ids), wanted=len(wanted), at_least=True, most=len(wanted)),
        Figure(f"{how}: spans that are not as printed", WHERE, len(texts ^ right), wanted=0),
        Figure(f"{how}: spans without their parent", WHERE, orphans, wanted=0),
        Figure(f"{how}: services other than fleet", WHERE, len(passed.services ^ {"fleet"}), wanted=0),
    )
    more = abs(len(passed.spans) - max(copies, 1) * len(wanted))
    table.add(Figure(f"{how}: spans more or less often than sent", WHERE, more, wanted=0 if copies else None))
    for wrong in sorted(texts ^ right)[:4]:
        sys.stderr.write(f"{wrong[:1_500]}\n")


def main() -> int:
    parser = command_line("chaos.otlp_collector", __doc__)
    parser.add_argument("--tools", type=Path, required=True, help="the folder with the collector and the messages")
    args = parser.parse_args()
    sys.path.append(str(args.tools.resolve()))
    table = Table("Traces in a real collector")
    with temporary_folder() as folder:
        trial(folder, args.tools.resolve(), table)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
