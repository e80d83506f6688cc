"""A simulated node: it responds to each order after a delay with the result of honest work.

    python -m bench.simulated_node STORE WORK_S [TURNS]

`bench/many_attempts.py` passes such nodes to a run, so that only the manager is measured. An attempt adds the file
named by its subtask, as a pack with one commit. With TURNS, it first calls a model that many times. Trees are read from
the manager's store instead of from received packs, which a real node could not do.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from random import Random

from fleet import __version__
from fleet.features.nodes.messages import Decoder, Frame, encode

COMMIT, TREE, BLOB = 1, 2, 3
NAMES = {COMMIT: "commit", TREE: "tree", BLOB: "blob"}
FOLDER, FILE = b"40000", b"100644"
PERSON = "A <a@b> 1700000000 +0000"
RESULT = "def value():\n    return 1\n" * 20
Json = dict[str, object]


class Objects:
    """Reads from a store, and makes packs of new objects."""

    def __init__(self, store: str) -> None:
        argv = ["git", "--git-dir", store, "cat-file", "--batch"]
        self._git = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def read(self, name: str) -> bytes | None:
        if self._git.stdin is None or self._git.stdout is None:
            raise OSError("git has no pipes")
        self._git.stdin.write(f"{name}\n".encode())
        self._git.stdin.flush()
        head = self._git.stdout.readline().split()
        if head[-1] == b"missing":
            return None
        return self._git.stdout.read(int(head[2]) + 1)[:-1]

    def commit(self, base: str, path: str) -> tuple[str, bytes]:
        """A commit that adds a file, and the pack that holds it."""
        new: list[tuple[int, bytes]] = [(BLOB, f"{path}\n".encode())]
        folders = path.split("/")
        node = _id(*new[0])
        for depth in range(len(folders) - 1, -1, -1):
            at = self.read(f"{base}:{'/'.join(folders[:depth])}")
            entries = {name: (mode, id_) for mode, name, id_ in _entries(at or b"")}
            mode = FILE if depth == len(folders) - 1 else FOLDER
            entries[folders[depth].encode()] = mode, node
            new.append((TREE, _tree(entries)))
            node = _id(*new[-1])
        text = f"tree {node.hex()}\nparent {base}\nauthor {PERSON}\ncommitter {PERSON}\n\nwork\n"
        new.append((COMMIT, text.encode()))
        pack = b"PACK" + (2).to_bytes(4) + len(new).to_bytes(4) + b"".join(_packed(*each) for each in new)
        return _id(*new[-1]).hex(), pack + sha1(pack, usedforsecurity=False).digest()


def _entries(tree: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    at = 0
    while at < len(tree):
        space, end = tree.index(b" ", at), tree.index(b"\0", at)
        yield tree[at:space], tree[space + 1 : end], tree[end + 1 : end + 21]
        at = end + 21


def _tree(entries: dict[bytes, tuple[bytes, bytes]]) -> bytes:
    ordered = sorted(entries, key=lambda name: name + b"/" * (entries[name][0] == FOLDER))
    return b"".join(entries[name][0] + b" " + name + b"\0" + entries[name][1] for name in ordered)


def _id(kind: int, content: bytes) -> bytes:
    return sha1(f"{NAMES[kind]} {len(content)}\0".encode() + content, usedforsecurity=False).digest()


def _packed(kind: int, content: bytes) -> bytes:
    size = len(content)
    head, size = bytearray([kind << 4 | size & 15]), size >> 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head) + zlib.compress(content, 1)


def ask(model: str, turn: int) -> tuple[bytes, int]:
    """The request of a turn, and how much of it the turn before had, too."""
    first = {"type": "text", "text": "Write the file. " * 100}
    messages: list[Json] = [{"role": "user", "content": [first]}]
    for number in range(1, turn):
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": {"command": "pytest -q"}}
        said = {"type": "text", "text": "I look at the next file, and continue from there. " * 4}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": RESULT}
        messages += [{"role": "assistant", "content": [said, use]}, {"role": "user", "content": [result]}]
    tool = {"name": "bash", "description": "Run.", "input_schema": {"type": "object"}}
    head = {
        "model": model,
        "effort": None,
        "max_tokens": 1_000,
        "system": "You write code, and report. " * 200,
        "tools": [tool],
        "shared": 1,
    }
    start = json.dumps(head, separators=(",", ":"))[:-1] + ',"messages":['
    body = ",".join(json.dumps(each, separators=(",", ":")) for each in messages)
    end = f'],"previous":null,"turn":{turn},"left_s":3000.0,"warm":false}}'
    before = ",".join(json.dumps(each, separators=(",", ":")) for each in messages[:-2])
    return f"{start}{body}{end}".encode(), len(start) + len(before) if turn > 1 else 0


@dataclass
class SimulatedNode:
    """One connection, for one run."""

    objects: Objects
    work_s: float
    turns: int
    out: asyncio.WriteTransport
    chance: Random = field(default_factory=lambda: Random(os.getpid()))  # noqa: S311 - it only varies waits
    orders: dict[str, Json] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    decoder: Decoder = field(default_factory=Decoder)

    def greet(self) -> None:
        self.send({"type": "greeting", "protocol": 2, "version": __version__, "host": "simulated", "processors": 64,
                   "memory_bytes": 1 << 36, "time": time.time(), "problems": []})  # fmt: skip

    def send(self, header: Json, *parts: bytes) -> None:
        self.out.write(encode(Frame(header, parts)))

    def feed(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            self.take(frame.header, frame.parts)

    def take(self, header: Json, parts: tuple[bytes, ...]) -> None:
        key = str(header.get("key", ""))
        match header["type"]:
            case "open":
                self.send({"type": "opened", "commits": [header["base"]], "orders": [], "lacks": []})
            case "beat":
                self.send(header)
            case "objects" if header["last"]:
                self.send({"type": "stored", "commit": header["commit"], "why": ""})
            case "start":
                self.orders[key] = json.loads(parts[0])
            case "follow" if self.orders[key].get("attempt"):
                self.event(key, 0, {"began": True})
                asyncio.get_running_loop().call_later(self.wait_s, self.go_on, key)
            case "follow":
                self.check(key)
            case "answer" if header["last"]:
                self.send({"type": "drop", "key": key, "number": header["number"]})
                asyncio.get_running_loop().call_later(self.wait_s, self.go_on, key)
            case "cancel" | "acknowledge":
                self.orders.pop(key, None)

    @property
    def wait_s(self) -> float:
        """Return the delay until the next call, or until the end."""
        return self.work_s / (self.turns + 1) * self.chance.uniform(0.5, 1.5)

    def event(self, key: str, number: int, event: Json, pack: bytes = b"") -> None:
        body = json.dumps(event, separators=(",", ":")).encode()
        self.send({"type": "event", "key": key, "number": number}, body, pack, b"")

    def go_on(self, key: str) -> None:
        """Call the model once more, or report."""
        if (order := self.orders.get(key)) is None:
            return
        attempt, turn = order["attempt"], self.asked.get(key, 0) + 1
        assert isinstance(attempt, dict)
        if turn <= self.turns:
            self.asked[key] = turn
            request, same = ask(attempt["brief"]["model"], turn)
            line = json.dumps({"turn": turn, "text": "x" * 300}) + "\n"
            self.send({"type": "call", "key": key, "number": turn - 1, "same": same}, request[same:], line.encode())
            return
        subtask = attempt["brief"]["subtask"]
        commit, pack = self.objects.commit(attempt["base"], subtask["parameters"]["file"])
        self.event(key, 1, {"worked": True})
        report = {"status": "done", "summary": f"The file of {subtask['id']} is there."}
        self.event(key, 2, {"attempt": {"report": report, "commit": commit}}, pack)

    def check(self, key: str) -> None:
        checks = self.orders[key]["checks"]
        assert isinstance(checks, dict)
        runs = []
        for criterion in checks["criteria"]:
            passed = self.objects.read(f"{checks['commit']}:{criterion['run'].split()[-1]}") is not None
            runs.append({"criterion": criterion["criterion"], "command": criterion["run"], "passed": passed,
                         "exit_code": int(not passed), "seconds": 0.01})  # fmt: skip
        self.event(key, 0, {"checks": {"runs": runs, "tests": [None for _ in runs]}})


class Input(asyncio.Protocol):
    """Passes the manager's messages to the node."""

    def __init__(self, node: SimulatedNode, ended: asyncio.Event) -> None:
        self._node, self._ended = node, ended

    def data_received(self, data: bytes) -> None:
        self._node.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._ended.set()


async def serve(store: str, work_s: float, turns: int) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    with os.fdopen(0, "rb", buffering=0) as source, os.fdopen(1, "wb", buffering=0) as sink:
        out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sink)
        node = SimulatedNode(Objects(store), work_s, turns, out)
        node.greet()
        await loop.connect_read_pipe(lambda: Input(node, ended), source)
        await ended.wait()


def main() -> None:
    store, work_s, *turns = sys.argv[1:]
    [found] = Path(store).glob("stores/*/fleet.git")
    asyncio.run(serve(str(found), float(work_s), int(*turns or ("0",))))


if __name__ == "__main__":
    main()
