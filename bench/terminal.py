"""The cost of the terminal UI: a real `fleet watch` on a separate terminal, with generated journals.

*Busy*: a thousand working agents, a thousand facts and ten refreshes per second: the share of one core, and the time
from a key press to the screen. *Long*: a journal of 100,000 facts: the time from the start of the program to the first
complete screen, divided by the time that another program needs to read that journal. *Attached*: `fleet run` with 120
agents, with and without `fleet watch`.
"""

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
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from anyio import to_thread

from bench.hundred import TINY, FleetRun
from bench.side_by_side import Extent, Limits, generated_project, interleave, processor_ms_of, ratios
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion, Plan, Subtask
from fleet.runs.journal import Journal, engine_lock
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, progress, temporary_folder

ROWS, COLUMNS = 50, 160
AGENTS, FACTS_PER_S, LONG = 1_000, 1_000, 100_000
ATTACHED = 120
TIMEOUT_S = 120.0
LAST = "this is the last fact"
RUN = "bench"
READ = """
import sys
from pathlib import Path
from fleet.runs.run_folder import RunFolder
assert RunFolder(Path(sys.argv[1]).parent).state() is not None
"""


async def screen_figures(extent: Extent) -> list[Figure]:
    """The three measurements, one after another."""
    progress("terminal UI: a thousand rows")
    busy = await to_thread.run_sync(busy_figures, extent.screen_s, extent.keys)
    progress("terminal UI: a long journal")
    long = await to_thread.run_sync(long_journal_figure, extent.journal_facts, 2 * extent.whole_runs - 1)
    progress("terminal UI: beside a run")
    return [*busy, long, *await attached_figures(extent)]


# ---- a generated journal ---------------------------------------------------------------------------------------------


def subtask_ids(count: int) -> list[str]:
    return [f"subtask-{number:04}" for number in range(count)]


def first_facts(count: int, *, at: float) -> list[f.Fact]:
    """Return the facts of a run with this many working agents."""
    check = Criterion(criterion="it exists", run="true")
    plan = Plan(
        goal="a benchmark",
        subtasks=tuple(
            Subtask(id=name, title=f"Do {name}", goal="Do it.", acceptance=(check,)) for name in subtask_ids(count)
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
    for name in subtask_ids(count):
        started = f.AttemptStarted(at=at, subtask=name, number=1, worker="coder", model="m", base="0", strategy="first")
        facts += [started, f.WorkerStarted(at=at, subtask=name, number=1)]
    return facts


def model_call(number: int, names: Sequence[str], *, at: float) -> f.Fact:
    return f.ModelCalled(
        at=at,
        role="worker",
        model="claude-haiku-5-5",
        usage=Usage(input=900, output=120),
        dollars=0.0002,
        seconds=1.5,
        subtask=names[number % len(names)],
        attempt=1,
        turn=number // len(names) + 1,
        doing=f"bash pytest -q tests/test_{number}.py",
    )


@contextmanager
def journal_at(state_dir: Path) -> Iterator[Journal]:
    """The journal of a run, locked as by an engine while the block lasts."""
    path = state_dir / "runs" / RUN / "journal.db"
    with Journal.create(path) as journal, engine_lock(path):
        yield journal


# ---- the program in front of a terminal ------------------------------------------------------------------------------


@dataclass
class Screen:
    """A `fleet watch` and the terminal that it writes to."""

    process: subprocess.Popen[bytes]
    master: int
    seen: bytearray = field(default_factory=bytearray)

    def wait_for(self, text: bytes) -> float:
        """Seconds until the program has written this text."""
        started = time.perf_counter()
        while text not in self.seen:
            remaining = TIMEOUT_S - (time.perf_counter() - started)
            if remaining < 0 or not select.select([self.master], [], [], remaining)[0]:
                raise RuntimeError(f"{text!r} was not shown: {bytes(self.seen[-2000:])!r}")
            self.seen += os.read(self.master, 65536)
        return time.perf_counter() - started

    def press(self, key: bytes, text: bytes) -> float:
        """Seconds from a key to the text that it brings to the screen."""
        self.seen.clear()
        os.write(self.master, key)
        return self.wait_for(text)

    def processor_ms(self) -> float:
        return processor_ms_of(self.process.pid)


@contextmanager
def watch(state_dir: Path, run: str) -> Iterator[Screen]:
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
        yield Screen(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


@contextmanager
def drained(screen: Screen) -> Iterator[None]:
    """Read and drop what the program writes while the block lasts, as a terminal does."""
    stop = Event()

    def read() -> None:
        while not stop.is_set():
            if select.select([screen.master], [], [], 0.05)[0]:
                try:
                    os.read(screen.master, 65536)
                except OSError:
                    return

    reader = Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        stop.set()
        reader.join()


@contextmanager
def appending(journal: Journal, names: Sequence[str]) -> Iterator[None]:
    """Append a thousand facts per second in ten transactions while the block lasts."""
    stop = Event()

    def append() -> None:
        number, due = 0, time.perf_counter()
        while not stop.wait(max(0.0, due - time.perf_counter())):
            numbers = range(number, number + FACTS_PER_S // 10)
            journal.append([model_call(each, names, at=time.time()) for each in numbers])
            number, due = numbers.stop, due + 0.1

    writer = Thread(target=append)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


# ---- figures ---------------------------------------------------------------------------------------------------------


def busy_figures(
    seconds: float, keys: int, facts: Sequence[f.Fact] = (), names: Sequence[str] = (), *, what: str = "screen"
) -> list[Figure]:
    """Measure a run with these facts and these running subtasks. Default: a thousand agents."""
    names = names or subtask_ids(AGENTS)
    with temporary_folder() as folder, journal_at(folder) as journal:
        facts = facts or first_facts(AGENTS, at=time.time())
        journal.append([*facts, f.WarningNoted(at=facts[-1].at, text=LAST)])
        with watch(folder, RUN) as screen:
            screen.wait_for(LAST.encode())  # what is measured is not the reading of all that
            screen.press(b"2", b"[Agents")
            with appending(journal, names):
                with drained(screen):
                    time.sleep(2.0)
                    before, started = screen.processor_ms(), time.perf_counter()
                    time.sleep(seconds)
                    share = (screen.processor_ms() - before) / 1e3 / (time.perf_counter() - started)
                waits = sorted(_key_times(screen, keys))
    p95_ms = waits[min(len(waits) - 1, int(len(waits) * 0.95))] * 1e3
    where = f"{len(names):,} at work"
    note = f"{FACTS_PER_S:,} facts and 10 refreshes per second"
    key_note = f"median {waits[len(waits) // 2] * 1e3:.0f}"
    return [
        Figure(f"{what}: share of one core", where, share, wanted=0.15, note=note),
        Figure(f"{what}: key to screen, p95, ms", where, p95_ms, wanted=100.0, note=key_note),
    ]


def _key_times(screen: Screen, keys: int) -> Iterator[float]:
    for number in range(keys):
        time.sleep(0.037)  # at a changing distance from the refreshes
        yield screen.press(*((b"3", b"[Plan") if number % 2 == 0 else (b"2", b"[Agents")))


def long_journal_figure(count: int, rounds: int) -> Figure:
    """From the start of the program to the first complete screen, divided by reading the journal."""
    with temporary_folder() as folder, journal_at(folder) as journal:
        agents, names = 200, subtask_ids(200)
        facts = first_facts(agents, at=0.0)
        facts += [model_call(number, names, at=number / 100) for number in range(count - len(facts) - 1)]
        facts.append(f.WarningNoted(at=count / 100, text=LAST))
        journal.append(facts)
        reading, shown = list[float](), list[float]()
        for _ in range(rounds):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", READ, str(journal.path)], check=True)
            reading.append(time.perf_counter() - started)
            with watch(folder, RUN) as screen:
                shown.append(screen.wait_for(LAST.encode()))
    read_s = sorted(reading)[rounds // 2]
    ratio, note = sorted(shown)[rounds // 2] / read_s, f"{read_s:.1f} s to read it"
    return Figure("screen: to the first full one, over reading", f"{count:,} facts", ratio, wanted=3.0, note=note)


@dataclass
class WatchedRun(FleetRun):
    """The same run with a `fleet watch` that is opened as soon as there is a journal."""

    @contextmanager
    def beside(self, folder: RunFolder) -> Iterator[None]:
        deadline = time.monotonic() + TIMEOUT_S
        while not folder.journal.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("the run did not start")
            time.sleep(0.01)
        with watch(folder.path.parents[1], folder.run) as screen, drained(screen):
            yield


async def attached_figures(extent: Extent) -> list[Figure]:
    wanted: Limits = {"screen": {TINY: 1.05}}
    with generated_project(TINY, extent.folder, commits=1) as project:
        unwatched = FleetRun(project, "overlay", "unwatched", count=ATTACHED)
        watched = WatchedRun(project, "overlay", "watched", count=ATTACHED)
        costs = await interleave({"alone": unwatched, "screen": watched}, extent.whole_runs + 1, warm=1)
    return ratios(f"{ATTACHED} agents: with a screen, over without", TINY, costs, base="alone", wanted=wanted)
