"""What the terminal UI costs: a real `fleet watch` on a terminal of its own, over journals that are made up.

Busy: a thousand agents at work, a thousand facts and ten refreshes a second; its share of one core, and the time from a
key to the screen. Long: a journal of 100,000 facts; from the start of the program to the first full screen, over the
time another program takes to do nothing but read that journal. Attached: 120 agents and the whole engine, with a screen
beside it and without. Run it alone: python -m tests.benchmarks.terminal [--small]
"""

import argparse
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import anyio
from anyio import to_thread

from fleet.core import facts as f
from fleet.core.plan import Criterion, Plan, Subtask
from fleet.core.policy import Policy
from fleet.core.usage import Usage
from fleet.journal import Journal, held
from tests.benchmarks.hundred import Hundred
from tests.benchmarks.side_by_side import HEAD, SHARED, TICK_MS, Figure, Ground, Limits, ground, interleave, ratios, say

ROWS, COLUMNS = 50, 160
AGENTS, FACTS_A_SECOND, LONG = 1_000, 1_000, 100_000
ATTACHED = 120
PATIENCE_S = 120.0
RUN = "bench"
READ = """
import sys
from pathlib import Path
from fleet.journal import Journal, replay
with Journal(Path(sys.argv[1])) as journal:
    assert replay(journal.facts()) is not None
"""


def names(count: int) -> list[str]:
    return [f"subtask-{number:04}" for number in range(count)]


def beginning(count: int, *, at: float) -> list[f.Fact]:
    """A run with so many agents at work."""
    check = Criterion(criterion="it is there", run="true")
    plan = Plan(
        goal="a benchmark",
        subtasks=tuple(
            Subtask(id=name, title=f"Do {name}", goal="Do it.", acceptance=(check,)) for name in names(count)
        ),
    )
    first = f.RunStarted(
        at=at,
        run=RUN,
        goal="a benchmark",
        repository="nowhere",
        base="0" * 40,
        base_name="main",
        result_branch=f"fleet/{RUN}",
        policy=Policy(workers=1000, max_subtasks=2000),
        plan=plan,
    )
    facts: list[f.Fact] = [first, f.EngineStarted(at=at, epoch=1, pid=os.getpid(), host="here", version="0")]
    for name in names(count):
        started = f.AttemptStarted(at=at, subtask=name, number=1, worker="coder", model="m", base="0", strategy="first")
        facts += [started, f.WorkerStarted(at=at, subtask=name, number=1)]
    return facts


def call(number: int, count: int, *, at: float) -> f.Fact:
    return f.ModelCalled(
        at=at,
        role="worker",
        model="claude-haiku-5-5",
        usage=Usage(input=900, output=120),
        dollars=0.0002,
        seconds=1.5,
        subtask=f"subtask-{number % count:04}",
        attempt=1,
        turn=number // count + 1,
        doing=f"bash pytest -q tests/test_{number}.py",
    )


@contextmanager
def journal_at(state_dir: Path) -> Iterator[Journal]:
    """The journal of a run that is worked on, for as long as the block lasts."""
    path = state_dir / "runs" / RUN / "journal.db"
    with Journal.create(path) as journal, held(path):
        yield journal


@dataclass
class Watching:
    """A `fleet watch` in front of a terminal."""

    process: subprocess.Popen[bytes]
    master: int
    seen: bytearray = field(default_factory=bytearray)

    def wait_for(self, words: bytes) -> float:
        """Seconds until these words are written; what came before is forgotten."""
        began = time.perf_counter()
        while words not in self.seen:
            left = PATIENCE_S - (time.perf_counter() - began)
            if left < 0 or not select.select([self.master], [], [], left)[0]:
                raise RuntimeError(f"{words!r} was not shown: {bytes(self.seen[-2000:])!r}")
            self.seen += os.read(self.master, 65536)
        return time.perf_counter() - began

    def press(self, key: bytes, words: bytes) -> float:
        """Seconds from a key to what it shows."""
        self.seen.clear()
        os.write(self.master, key)
        return self.wait_for(words)

    def processor_ms(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_MS


@contextmanager
def watching(state_dir: Path, run: str) -> Iterator[Watching]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {name: os.environ[name] for name in ("PATH",)} | {
        "HOME": str(state_dir),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "FLEET_STATE_DIR": str(state_dir),
    }
    command = [sys.executable, "-m", "fleet", "watch", run]
    process = subprocess.Popen(
        command, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    try:
        yield Watching(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


@contextmanager
def drained(screen: Watching) -> Iterator[None]:
    """What is written meanwhile is taken, as a terminal takes it."""
    over = Event()

    def take() -> None:
        while not over.is_set():
            if select.select([screen.master], [], [], 0.05)[0]:
                try:
                    os.read(screen.master, 65536)
                except OSError:
                    return

    reader = Thread(target=take)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()


@contextmanager
def pouring(journal: Journal, count: int) -> Iterator[None]:
    """So many facts a second, in ten helpings."""
    over = Event()

    def pour() -> None:
        number, due = 0, time.perf_counter()
        while not over.wait(max(0.0, due - time.perf_counter())):
            helping = range(number, number + FACTS_A_SECOND // 10)
            journal.append([call(one, count, at=time.time()) for one in helping])
            number, due = helping.stop, due + 0.1

    source = Thread(target=pour)
    source.start()
    try:
        yield
    finally:
        over.set()
        source.join()


def busy_figures(seconds: float, keys: int) -> list[Figure]:
    with TemporaryDirectory(dir=SHARED) as folder, journal_at(Path(folder)) as journal:
        journal.append(beginning(AGENTS, at=time.time()))
        with watching(Path(folder), RUN) as screen:
            screen.wait_for(b"AGENTS")
            screen.press(b"2", b"[Agents")
            with pouring(journal, AGENTS):
                with drained(screen):
                    time.sleep(2.0)
                    before, began = screen.processor_ms(), time.perf_counter()
                    time.sleep(seconds)
                    share = (screen.processor_ms() - before) / 1e3 / (time.perf_counter() - began)
                waits = sorted(_key_times(screen, keys))
    late = waits[min(len(waits) - 1, int(len(waits) * 0.95))] * 1e3
    where = f"{AGENTS:,} rows"
    note = f"{FACTS_A_SECOND:,} facts and 10 refreshes a second"
    return [
        Figure("screen: share of one core", where, share, wanted=0.15, note=note),
        Figure(
            "screen: key to screen, p95, ms",
            where,
            late,
            wanted=100.0,
            note=f"median {waits[len(waits) // 2] * 1e3:.0f}",
        ),
    ]


def _key_times(screen: Watching, keys: int) -> Iterator[float]:
    for number in range(keys):
        time.sleep(0.037)  # at no fixed place between two refreshes
        yield screen.press(*((b"3", b"[Plan") if number % 2 == 0 else (b"2", b"[Agents")))


def long_figures(facts: int, rounds: int) -> list[Figure]:
    """From nothing to the first full screen, over reading the journal and nothing else."""
    with TemporaryDirectory(dir=SHARED) as folder, journal_at(Path(folder)) as journal:
        count = 200
        whole = beginning(count, at=0.0)
        whole += [call(number, count, at=number / 100) for number in range(facts - len(whole) - 1)]
        whole.append(f.WarningNoted(at=facts / 100, text="this is the last fact"))
        journal.append(whole)
        alone, shown = list[float](), list[float]()
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", READ, str(journal.path)], check=True)
            alone.append(time.perf_counter() - began)
            with watching(Path(folder), RUN) as screen:
                shown.append(screen.wait_for(b"this is the last fact"))
    ratio = sorted(shown)[rounds // 2] / sorted(alone)[rounds // 2]
    note = f"{sorted(alone)[rounds // 2]:.1f} s to read it"
    return [Figure("screen: to the first full one, over reading", f"{facts:,} facts", ratio, wanted=3.0, note=note)]


@dataclass
class Beside(Hundred):
    """The engine at work, with a screen beside it or without. The screen is there before anything is measured."""

    screen: bool = True

    async def prepare(self, stack: ExitStack, journal: Path) -> None:
        Journal.create(journal).close()
        if self.screen:
            screen = stack.enter_context(watching(journal.parents[2], journal.parent.name))
            await to_thread.run_sync(screen.wait_for, b"has not begun")
            stack.enter_context(drained(screen))

    def journal(self, path: Path) -> Journal:
        return Journal(path)


async def attached_figures(on: Ground, rounds: int) -> list[Figure]:
    alone = Beside(on, "overlay", [], [], count=ATTACHED, label="alone", screen=False)
    shown = Beside(on, "overlay", [], [], count=ATTACHED, label="shown")
    costs = await interleave({"alone": alone, "screen": shown}, rounds, warm=1)
    wanted: Limits = {"screen": {on.files: 1.05}}
    return ratios(f"{ATTACHED} agents: with a screen, over without", on.files, costs, git="alone", wanted=wanted)


def figures(*, small: bool) -> Iterator[Sequence[Figure]]:
    yield busy_figures(seconds=4.0 if small else 15.0, keys=30 if small else 100)
    yield long_figures(20_000 if small else LONG, rounds=1 if small else 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    say(HEAD)
    for group in figures(small=given.small):
        say(*group)
    with ground(20, commits=1) as on:
        say(*anyio.run(attached_figures, on, 1 if given.small else 3))


if __name__ == "__main__":
    main()
