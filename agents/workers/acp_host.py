"""The host program of an agent in its sandbox: forwards lines, and serves files and terminals.

A worktree can only be in one sandbox at a time, so the agent's requests to its client are carried out in its sandbox.
The host program is as untrusted as the agent. It only uses the standard library, with the same Python as fleet.
"""

# Paths are untrusted text until they are opened, and blocking calls only delay the agent.
# ruff: noqa: ASYNC230, ASYNC240, PTH103, PTH108, PTH118, PTH120, PTH123

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import struct
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

HEADER = struct.Struct("!cI")
LINE, ASK, REPLY, NEWS = b"L", b"Q", b"R", b"N"
LONGEST = 8 * 1024 * 1024  # bytes of a frame, and of a line of the agent
MOST_BYTES = 2 * 1024 * 1024  # per file that is read or written
MOST_OUTPUT = 1024 * 1024  # last bytes kept of a terminal's output
MOST_TERMINALS = 16
ERRORS = 4_000  # last bytes kept of the agent's stderr
CONTINUED = 0x80  # the upper two bits of a byte within a character
GRACE_S = 2.0  # how long the agent may take to exit after the end of its input
LONGEST_REPORT = 24_001
Asked = Mapping[str, Any]


class OverError(Exception):
    """The manager has closed the connection."""


class RefusedError(Exception):
    """A rejected request. The agent sees the reason."""


@dataclass
class Terminal:
    """A command of the agent, and the end of its output."""

    process: asyncio.subprocess.Process
    limit: int
    output: bytearray = field(default_factory=bytearray)
    truncated: bool = False
    drained: asyncio.Event = field(default_factory=asyncio.Event)

    async def drain(self) -> None:
        stream = self.process.stdout
        while stream is not None and (chunk := await stream.read(65_536)):
            self.output += chunk
            if len(self.output) > self.limit:
                self.truncated = True
                del self.output[: len(self.output) - self.limit]
        await self.process.wait()
        self.drained.set()

    @property
    def status(self) -> dict[str, Any] | None:
        code = self.process.returncode
        if code is None:
            return None
        return {"exitCode": code} if code >= 0 else {"signal": signal.Signals(-code).name}

    @property
    def text(self) -> str:
        """Return the kept output, from the first complete character."""
        kept = bytes(self.output)
        start = next((at for at, byte in enumerate(kept[:4]) if byte & 0xC0 != CONTINUED), 0) if self.truncated else 0
        return kept[start:].decode("utf-8", "replace")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class TerminalHost:
    """Serves one agent until the manager closes the connection."""

    root: str
    report: str
    tasks: asyncio.TaskGroup
    writer: asyncio.StreamWriter
    terminals: dict[str, Terminal] = field(default_factory=dict)
    opened: int = 0

    async def send(self, kind: bytes, payload: bytes) -> None:
        self.writer.write(HEADER.pack(kind, len(payload)) + payload)
        await self.writer.drain()

    async def serve(self, asked: Asked) -> None:
        """Answer a request."""
        serve = SERVED[asked["do"]]
        try:
            reply = {"result": await serve(self, asked)}
        except (RefusedError, OSError, ValueError) as error:
            why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            reply = {"refused": why}
        await self.send(REPLY, json.dumps({"id": asked["id"], **reply}, ensure_ascii=False).encode("utf-8", "replace"))

    # ---- files ----

    def inside(self, path: str, *, links: bool) -> str:
        """Check that a path is in the worktree or that of the report. `links`: whether links within it are allowed."""
        if path == self.report:
            return path
        real = os.path.realpath(path)
        if real != self.root and not real.startswith(f"{self.root}/"):
            raise RefusedError(f"{path} is outside the worktree")
        if ".git" in real[len(self.root) :].lower().split("/"):
            raise RefusedError(f"{path} belongs to git")
        if not links and os.path.normpath(path) != real:
            raise RefusedError(f"{path} contains a symbolic link")
        return real

    async def read(self, asked: Asked) -> str:
        path = self.inside(asked["path"], links=True)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RefusedError(f"{asked['path']} is not a regular file")
            first, limit = asked.get("line") or 1, asked.get("limit")
            if first == 1 and limit is None:
                content = file.read(MOST_BYTES + 1)
            else:
                content = b""
                for number, line in enumerate(file, start=1):
                    if (limit is not None and number >= first + limit) or len(content) > MOST_BYTES:
                        break
                    content += line if number >= first else b""
        if len(content) > MOST_BYTES:
            raise RefusedError(f"{asked['path']} has more than {MOST_BYTES} bytes. Read fewer lines.")
        return content.decode("utf-8", "replace")

    async def write(self, asked: Asked) -> None:
        path, content = self.inside(asked["path"], links=False), asked["content"].encode("utf-8", "replace")
        if len(content) > MOST_BYTES:
            raise RefusedError(f"{asked['path']} would have {len(content)} bytes (limit: {MOST_BYTES})")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o644), "wb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RefusedError(f"{asked['path']} is not a regular file")
            file.truncate()
            file.write(content)

    # ---- terminals ----

    async def create(self, asked: Asked) -> str:
        if len(self.terminals) >= MOST_TERMINALS:
            raise RefusedError(f"the limit of {MOST_TERMINALS} terminals is reached. Release one first.")
        cwd = self.inside(asked.get("cwd") or self.root, links=True)
        shell = "bash" if shutil.which("bash") else "sh"
        words = [asked["command"], *asked["args"]] if asked["args"] else [shell, "-c", asked["command"]]
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **asked["env"]},
            start_new_session=True,
        )
        self.opened += 1
        name = f"terminal-{self.opened}"
        limit = asked.get("limit")
        terminal = Terminal(process, MOST_OUTPUT if limit is None else min(limit, MOST_OUTPUT))
        self.terminals[name] = terminal
        self.tasks.create_task(terminal.drain())
        return name

    def terminal(self, asked: Asked) -> Terminal:
        if asked["terminal"] not in self.terminals:
            raise RefusedError("unknown terminal")
        return self.terminals[asked["terminal"]]

    async def output(self, asked: Asked) -> dict[str, Any]:
        terminal = self.terminal(asked)
        return {"output": terminal.text, "truncated": terminal.truncated, "exitStatus": terminal.status}

    async def wait(self, asked: Asked) -> dict[str, Any]:
        terminal = self.terminal(asked)
        await terminal.process.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(terminal.drained.wait(), GRACE_S)  # a child of it may hold its output open
        return terminal.status or {}

    async def kill(self, asked: Asked) -> None:
        self.terminal(asked).kill()

    async def release(self, asked: Asked) -> None:
        self.terminal(asked).kill()
        del self.terminals[asked["terminal"]]


SERVED: dict[str, Callable[[TerminalHost, Asked], Awaitable[object]]] = {
    "read": TerminalHost.read,
    "write": TerminalHost.write,
    "create": TerminalHost.create,
    "output": TerminalHost.output,
    "wait": TerminalHost.wait,
    "kill": TerminalHost.kill,
    "release": TerminalHost.release,
}


# ---- the agent ----


async def lines(reader: asyncio.StreamReader, host: TerminalHost) -> None:
    """Forward the agent's output line by line. Lines that are too long are dropped."""
    rest, skipped = b"", 0
    while chunk := await reader.read(65_536):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if skipped or len(line) > LONGEST:
                await host.send(NEWS, json.dumps({"skipped": skipped + len(line)}).encode())
                skipped = 0
            elif line.strip():
                await host.send(LINE, line)
        if skipped or len(rest) > LONGEST:
            skipped, rest = skipped + len(rest), b""


async def tail(reader: asyncio.StreamReader, kept: bytearray) -> None:
    while chunk := await reader.read(65_536):
        kept += chunk
        del kept[:-ERRORS]


async def frames(reader: asyncio.StreamReader, host: TerminalHost, agent: asyncio.StreamWriter) -> None:
    """Process requests of the manager until it closes the connection."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            kind, length = HEADER.unpack(await reader.readexactly(HEADER.size))
            payload = await reader.readexactly(length)
            if kind == LINE:
                with suppress(ConnectionError):
                    agent.write(payload + b"\n")
                    await agent.drain()
            else:
                host.tasks.create_task(host.serve(json.loads(payload)))


async def bridge(path: str) -> int:
    """Open a port in the sandbox for the relay's socket, for agents that need an address."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_unix_connection(path)
            async with asyncio.TaskGroup() as both:
                both.create_task(pump(reader, there[1]))
                both.create_task(pump(there[0], writer))
            there[1].close()
        except OSError:
            pass  # the relay has been closed
        writer.close()

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    return port


async def serve(order: Asked) -> tuple[int, bytes, str]:
    """Run the agent of this order. Return its exit code, the end of its stderr, and the path of its report."""
    report = os.path.join(os.environ.get("TMPDIR") or "/tmp", "fleet-report.json")  # noqa: S108 - the box's own
    with suppress(FileNotFoundError):
        os.unlink(report)
    environment = {**os.environ, "FLEET_REPORT": report}
    if order["bridge"] and all(
        name == "lo" for _, name in socket.if_nameindex()
    ):  # otherwise other machines could connect
        environment["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{await bridge(order['bridge'])}"
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=os.dup(0)))
    ours, theirs = socket.socketpair()  # unlike a pipe, other processes in the sandbox can't open it
    agent = await asyncio.create_subprocess_exec(
        *("sh", "-c", f"exec {order['line']}"),
        stdin=theirs.fileno(),
        stdout=theirs.fileno(),
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    theirs.close()
    errors = bytearray()
    try:
        async with asyncio.TaskGroup() as tasks:
            host = TerminalHost(os.path.realpath(order["root"]), report, tasks, writer)
            await host.send(NEWS, json.dumps({"report": report}).encode())
            if agent.stderr is not None:
                tasks.create_task(tail(agent.stderr, errors))
            to_us, to_agent = await asyncio.open_unix_connection(sock=ours)
            tasks.create_task(listen(to_us, host, agent))
            await frames(reader, host, to_agent)
            await end(to_agent, agent)
    except* OverError:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(agent.pid, signal.SIGKILL)
    code = await agent.wait()
    return code if code >= 0 else 128 - code, bytes(errors), report


async def end(to_agent: asyncio.StreamWriter, agent: asyncio.subprocess.Process) -> NoReturn:
    """Close the agent's input, wait for it to exit, and end all tasks."""
    to_agent.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(agent.wait(), GRACE_S)
    raise OverError


async def listen(reader: asyncio.StreamReader, host: TerminalHost, agent: asyncio.subprocess.Process) -> None:
    """Forward the agent's output and its exit."""
    with suppress(ConnectionError):
        await lines(reader, host)
        await host.send(NEWS, json.dumps({"ended": await agent.wait()}).encode())


def print_ending(errors: bytes, marker: str, report: str) -> None:
    out = sys.stdout.buffer
    out.write(errors + f"\n{marker}\n".encode())
    with suppress(OSError), open(os.open(report, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
        out.write(file.read(LONGEST_REPORT))
    out.flush()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    exit_code, agent_errors, report_path = asyncio.run(serve(asked))
    print_ending(agent_errors, asked["marker"], report_path)
    os._exit(exit_code)  # avoids warnings of remaining terminals about the closed loop, which would follow the report
