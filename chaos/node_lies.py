"""A node that does not do as it should: `fleet node --stdio` with one thing about it changed.

    python -m chaos.node_lies "another parent" --config node.toml

Everything else about it is honest, so that what a manager refuses is the lie.
"""

import os
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha1
from typing import Any

from fleet.cli.entry import run_program
from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun
from fleet.engine.this_machine import ThisMachine
from fleet.features.nodes import messages, node_process
from fleet.features.nodes.call_proxy import CallChannel
from fleet.features.nodes.host import OrderHost
from fleet.features.nodes.messages import LONGEST_TRANSCRIPT, dump_event
from fleet.features.nodes.node_orders import AttemptDone, ChecksDone, OrderReport
from fleet.features.nodes.transport import Link
from fleet.ports.orders import AttemptOrder, AttemptResult, ChecksOrder, WorktreeReady
from scripts.frame import MET

HOUR_S = 3_600
BOMB_MIB = 600
NOT_ASKED, NOT_SENT = "r/attempt/not-asked/1", Sha("1234" * 10)


def set_(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


# ---- what it reports


@dataclass(frozen=True)
class Forge:
    """Makes objects in the node's store."""

    git_dir: str
    order: AttemptOrder

    def git(self, *args: str, data: bytes = b"") -> bytes:
        people = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        env = {"PATH": os.environ["PATH"], "GIT_DIR": self.git_dir, **people}
        return subprocess.run(["git", *args], input=data, env=env, capture_output=True, check=True).stdout

    def commit(self, tree: str, *parents: str) -> Sha:
        named = [word for parent in parents for word in ("-p", parent)]
        return Sha(self.git("commit-tree", tree, *named, "-m", "x").decode().strip())

    def reported(self, honest: AttemptDone, commit: Sha) -> AttemptDone:
        """The report of another commit, with all that it has on top of the base."""
        revisions = f"{commit}\n^{self.order.base}\n".encode()
        pack = self.git("pack-objects", "--quiet", "--revs", "--thin", "--stdout", data=revisions)
        return replace(honest, commit=commit, pack=pack)

    def with_entry(self, honest: AttemptDone, mode: str, path: str, content: bytes) -> AttemptDone:
        """The report of a commit that has one more path, or another content at one."""
        blob = self.git("hash-object", "-w", "--stdin", data=content).decode().strip()
        listed = self.git("ls-tree", str(honest.commit)).decode().splitlines()
        entries = [line for line in listed if not line.endswith(f"\t{path}")]
        tree = self.git("mktree", data="\n".join((*entries, f"{mode} blob {blob}\t{path}")).encode())
        return self.reported(honest, self.commit(tree.decode().strip(), self.order.base))


def another_parent(forge: Forge, honest: AttemptDone) -> OrderReport:
    """Base the commit on one that was not ordered."""
    first = str(honest.commit)
    return forge.reported(honest, forge.commit(f"{first}^{{tree}}", first))


def foreign_files(forge: Forge, honest: AttemptDone) -> OrderReport:
    """Change a path outside the subtask."""
    return forge.with_entry(honest, "100644", "README.md", b"stolen\n")


def link_out(forge: Forge, honest: AttemptDone) -> OrderReport:
    """Add a link that leads out of the repository."""
    return forge.with_entry(honest, "120000", f"{forge.order.brief.subtask.id}.txt", b"/etc/passwd")


def pack_bomb(forge: Forge, honest: AttemptDone) -> OrderReport:
    """A small pack with a file that is much larger than any that is taken."""
    del forge
    deflate, part, check = zlib.compressobj(1, wbits=-15), bytes(1024 * 1024), 1
    block = deflate.compress(part) + deflate.flush(zlib.Z_FULL_FLUSH)  # the same again for each further part
    for _ in range(BOMB_MIB):
        check = zlib.adler32(part, check)
    body = b"\x78\x01" + block * BOMB_MIB + deflate.flush() + check.to_bytes(4)
    size, header = BOMB_MIB * len(part), bytearray()
    header.append(3 << 4 | size & 15 | 0x80)
    size >>= 4
    while size:
        header.append(size & 0x7F | (0x80 if size >> 7 else 0))
        size >>= 7
    pack = b"PACK" + (2).to_bytes(4) + (1).to_bytes(4) + bytes(header) + body
    return replace(honest, pack=pack + sha1(pack, usedforsecurity=False).digest())


def damaged_pack(forge: Forge, honest: AttemptDone) -> OrderReport:
    """A byte in the middle of its pack is another one."""
    del forge
    pack = bytearray(honest.pack)
    pack[len(pack) // 2] ^= 0xFF
    return replace(honest, pack=bytes(pack))


def commit_not_sent(forge: Forge, honest: AttemptDone) -> OrderReport:
    """Report the base as the work."""
    return replace(honest, commit=forge.order.base)


def report_of_checks(forge: Forge, honest: AttemptDone) -> OrderReport:
    """Answer an attempt with the report of checks."""
    del forge, honest
    return ChecksDone(())


def endless_transcript(forge: Forge, honest: AttemptDone) -> OrderReport:
    """More output of the worker than travels."""
    del forge
    return replace(honest, transcript=b"x" * (LONGEST_TRANSCRIPT + 1))


def bad_work(forge: Forge, honest: AttemptDone) -> OrderReport:
    """Work that its check does not pass."""
    return forge.with_entry(honest, "100644", f"{forge.order.brief.subtask.id}.txt", b"something else\n")


def lie_in_reports(forged: Callable[[Forge, AttemptDone], OrderReport]) -> None:
    honest = OrderHost._reported

    async def reported(self: Any, order: AttemptOrder, line: CallChannel, result: AttemptResult) -> OrderReport:
        done = await honest(self, order, line, result)
        return forged(Forge(str(self.pack.__self__.git_store.git_dir), order), done)

    set_(OrderHost, "_reported", reported)


# ---- what it says of checks


def green_checks() -> None:
    """Claim that the checks of bad work pass, and that they fail on the base."""
    lie_in_reports(bad_work)
    honest = ThisMachine.check

    async def check(self: Any, order: ChecksOrder) -> tuple[CheckRun, ...]:
        asked = [each.run or "" for each in order.criteria]
        exists = [
            each.model_copy(update={"run": f"test -e {each.run.split()[-1]}"}) for each in order.criteria if each.run
        ]
        runs = await honest(self, replace(order, criteria=tuple(exists)))
        return tuple(run.model_copy(update={"command": command}) for run, command in zip(runs, asked, strict=True))

    set_(ThisMachine, "check", check)


def other_checks() -> None:
    """Report checks that were not ordered."""

    async def check(self: Any, order: ChecksOrder) -> tuple[CheckRun, ...]:
        del self, order
        return (CheckRun(criterion="all is well", command="true", passed=True),)

    set_(ThisMachine, "check", check)


def red_checks() -> None:
    """Do honest work, but report every check as failed."""
    honest = ThisMachine.check

    async def check(self: Any, order: ChecksOrder) -> tuple[CheckRun, ...]:
        runs = await honest(self, order)
        return tuple(run.model_copy(update={"passed": False, "exit_code": 1}) for run in runs)

    set_(ThisMachine, "check", check)


# ---- what it sends


def lie_in_the_stream(lie: Callable[[Link], Any]) -> None:
    """Do this in front of the first event of an order."""
    honest = Link.send

    async def send(self: Link, message: messages.NodeMessage, *parts: bytes) -> None:
        if isinstance(message, messages.NodeEvent):
            set_(Link, "send", honest)
            await lie(self)
        await honest(self, message, *parts)

    set_(Link, "send", send)


async def garbled_frames(link: Link) -> None:
    """Noise instead of a frame."""
    await link.stream.send(os.urandom(64 * 1024))


async def frame_of_gigabytes(link: Link) -> None:
    """A frame that announces more than is taken."""
    await link.stream.send((20).to_bytes(4) + (2**32 - 1).to_bytes(4) + bytes(64 * 1024))


async def order_not_given(link: Link) -> None:
    """A report of an order that it was not given."""
    await link.send(messages.NodeEvent(key=NOT_ASKED, number=0), *dump_event(WorktreeReady()))


async def beats_not_asked(link: Link) -> None:
    """Answers to signs of life that were not given."""
    await link.send(messages.Heartbeat(number=1_000_000))


async def objects_not_sent(link: Link) -> None:
    """The receipt of objects that were not sent."""
    await link.send(messages.Stored(commit=NOT_SENT))


def endless_events() -> None:
    """Report the start of an order repeatedly."""

    async def follow(self: Any, key: str, since: int = 0) -> AsyncIterator[WorktreeReady]:
        del self, key, since
        while True:
            yield WorktreeReady()

    set_(OrderHost, "follow", follow)


# ---- what else is different about it


def clock_ahead() -> None:
    """Run with a clock that is an hour ahead."""
    now = time.time
    set_(time, "time", lambda: now() + HOUR_S)


def other_version() -> None:
    set_(node_process, "__version__", "0.0.1")


LIES: dict[str, Callable[[], None]] = {
    "another parent": partial(lie_in_reports, another_parent),
    "foreign files": partial(lie_in_reports, foreign_files),
    "a link out": partial(lie_in_reports, link_out),
    "a pack bomb": partial(lie_in_reports, pack_bomb),
    "a damaged pack": partial(lie_in_reports, damaged_pack),
    "a commit that it did not send": partial(lie_in_reports, commit_not_sent),
    "checks instead of an attempt": partial(lie_in_reports, report_of_checks),
    "an endless transcript": partial(lie_in_reports, endless_transcript),
    "garbled frames": partial(lie_in_the_stream, garbled_frames),
    "a frame of gigabytes": partial(lie_in_the_stream, frame_of_gigabytes),
    "an order that it was not given": partial(lie_in_the_stream, order_not_given),
    "signs of life that were not given": partial(lie_in_the_stream, beats_not_asked),
    "objects that were not sent": partial(lie_in_the_stream, objects_not_sent),
    "endless events": endless_events,
    "green checks that it did not run": green_checks,
    "other checks than asked": other_checks,
}
"""Lies that must not land anything, and must be reported with the node's name."""
OTHERS: dict[str, Callable[[], None]] = {
    "a clock an hour ahead": clock_ahead,
    "another version": other_version,
    "every check red": red_checks,
}


def main() -> int:
    name, *options = sys.argv[1:]
    (LIES | OTHERS)[name]()
    sys.argv[1:] = ["node", "--stdio", *options]
    run_program()
    return MET


if __name__ == "__main__":
    sys.exit(main())
