"""The cost of a run of ten thousand subtasks, compared with a hundred subtasks or with reading the same rows.

*Engine*: the real engine, core and journal, with workers, git and checks in memory that take no time. All others use
generated journals (`wide_run.py`).
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

from anyio import to_thread

from bench.long_run import fetch
from bench.side_by_side import Cost, Extent, Stopwatch, Variant, interleave, typical
from bench.terminal import busy_figures
from bench.wide_run import RUN, Width, model_call, subtask_id, wide_facts, write_journal
from dashboards.address import Address
from dashboards.metrics.server import exporting
from fleet.app.capacity import collect_rarely
from fleet.core.base.ids import RunId, Sha
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.policy.planner_view import planner_state
from fleet.core.state.state import RunState
from fleet.engine.loop import Engine
from fleet.engine.perform import Performer
from fleet.ports.worktrees import Merged
from fleet.runs.journal import Journal, engine_lock
from fleet.runs.run_folder import RunFolder, without_collections
from scripts.frame import Figure, progress, temporary_folder
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import QUICK, FakeFleet, FakeIntegrator

AT_ONCE = 100
NARROW = 100  # subtasks of the run that each figure is compared with
REMEMBERED = 2 * AT_ONCE  # subtasks whose work a commit in memory holds
KEPT = 4 * AT_ONCE  # commits in memory whose work is still known
FACTS_EACH, MANY_FACTS_EACH = 5, 20  # a subtask; five where only its own facts count
BYTES_OF_A_TOKEN = 3.0  # JSON of English words has three to four
ENGINE, GROWTH, OVER_JSON, STATUS, SCRAPE, TOKENS = 1.5, 1.3, 4.0, 4.0, 2.0, 20_000.0


async def wide_figures(extent: Extent) -> list[Figure]:
    """Return the figures of a run of this width."""
    with temporary_folder(extent.folder) as folder:
        figures = [await engine_figure(folder, extent.wide)]
        figures += await replay_figures(folder, extent)
        figures += [await status_figure(folder, extent), *verb_figures(folder, extent)]
        figures += [await scrape_figure(folder, extent), state_figure(extent.wide)]
    progress("wide: terminal UI")
    return [*figures, *await to_thread.run_sync(_screen, extent)]


# ---- engine ----------------------------------------------------------------------------------------------------------


async def engine_figure(folder: Path, wide: int) -> Figure:
    """Processor time of a landed subtask in a wide run, divided by that in a narrow one."""
    progress("wide: engine")
    collect_rarely()  # as a run does
    narrow_ms = await _landing_ms(folder / "warm", NARROW)
    narrow_ms = min([narrow_ms, *[await _landing_ms(folder / f"narrow-{turn}", NARROW) for turn in range(4)]])
    wide_ms = await _landing_ms(folder / "wide", wide)
    note = f"{wide_ms:.2f} of {narrow_ms:.2f} ms"
    return Figure(
        "wide: engine, a landed subtask", f"{wide:,} of {NARROW}", wide_ms / narrow_ms, wanted=ENGINE, note=note
    )


@dataclass
class ShortMemory(FakeIntegrator):
    """Merges in memory. A commit holds the work of the last few subtasks, so that it costs the same in any run."""

    latest: dict[Sha, tuple[str, ...]] = field(default_factory=dict)
    kept: deque[Sha] = field(default_factory=deque)

    async def merge(self, tip: Sha, members: Sequence[f.Member]) -> Merged:
        landed = []
        for member in members:
            latest = (*self.latest.get(tip, ())[-REMEMBERED:], member.subtask)
            tip = self.git.commit(f"tip-{len(self.git.holds)}", latest)
            self.latest[tip] = latest
            landed.append(member.model_copy(update={"commit": tip}))
            self.kept += (tip, member.commit)
        while len(self.kept) > KEPT:  # what a store holds takes no memory of the engine's
            old = self.kept.popleft()
            self.git.holds[old] = frozenset()
            self.latest.pop(old, None)
        return Merged(tip=tip, landed=tuple(landed), conflicts=())

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        del run, new, old
        return True

    async def landed_since(self, run: RunId, old: Sha) -> tuple[f.Member, ...]:
        del run, old
        return ()


async def _landing_ms(folder: Path, count: int) -> float:
    """Milliseconds of processor time for each subtask of a run that lands all of its subtasks."""
    plan = plan_of(*map(subtask_id, range(count)))
    fleet = FakeFleet(plan=plan, policy=QUICK.model_copy(update={"workers": AT_ONCE}))
    fleet.integrator = ShortMemory(fleet.git)
    path = folder / "journal.db"
    with Journal.create(path) as journal, engine_lock(path):
        journal.append([fleet.first])
        engine = Engine(evolve(None, fleet.first), journal, fleet.clock)
        started = f.EngineStarted(at=fleet.clock.now(), epoch=1, pid=1, host="here", version="1")
        before = process_time()
        state = await engine.run(Performer(engine, fleet.world()), started)
        took = process_time() - before
    assert state.commits == count, f"{state.commits} of {count} subtasks landed: {state.ending_why}"
    return took * 1e3 / count


# ---- replay ----------------------------------------------------------------------------------------------------------


async def replay_figures(folder: Path, extent: Extent) -> list[Figure]:
    """Replaying a fact of a wide run against one of a narrow run, and against reading and decoding the same rows."""
    progress("wide: replay")
    facts: dict[int, int] = {}
    for count in (extent.wide, extent.wide // 10, NARROW):
        width = Width(count, count * FACTS_EACH, AT_ONCE, settled=True)
        facts[count] = write_journal(folder / f"replay-{count}", width)

    def replaying(count: int) -> Variant:
        async def replay(_: int) -> Cost:
            run, times = RunFolder(_journal(folder / f"replay-{count}").parent), _times(facts, count)
            with Stopwatch() as watch:
                for _ in range(times):
                    run.state()
            return watch.cost.divided_by(facts[count] * times)

        return replay

    def decoding(count: int) -> Variant:
        async def decode(_: int) -> Cost:
            times = _times(facts, count)
            with Stopwatch() as watch, without_collections():  # as the replay
                for _ in range(times):
                    with closing(sqlite3.connect(_journal(folder / f"replay-{count}"))) as rows:
                        query = "select seq, body from facts order by seq"
                        assert len([json.loads(body) for _, body in rows.execute(query)]) == facts[count]
            return watch.cost.divided_by(facts[count] * times)

        return decode

    steps = {f"replay {count}": replaying(count) for count in facts}
    steps |= {f"decode {count}": decoding(count) for count in facts}
    costs = {name: typical(each) for name, each in (await interleave(steps, extent.rounds)).items()}
    growth, over_json = "wide: replay a fact, over a narrow run's", "wide: replay, over decoding the same rows"
    where = f"{facts[extent.wide]:,} facts"
    return [
        _ratio(growth, where, costs[f"replay {extent.wide}"], costs[f"replay {NARROW}"], GROWTH),
        *(
            _ratio(over_json, f"{facts[count]:,} facts", costs[f"replay {count}"], costs[f"decode {count}"], OVER_JSON)
            for count in (extent.wide, extent.wide // 10)
        ),
    ]


def _times(facts: Mapping[int, int], count: int) -> int:
    """Return how often to read a journal in a turn, so that about as many facts are read as in the largest one."""
    return max(1, max(facts.values()) // facts[count] // 4)


def _journal(state_dir: Path) -> Path:
    return state_dir / "runs" / RUN / "journal.db"


def _ratio(measure: str, where: str, cost: Cost, base: Cost, wanted: float) -> Figure:
    """Return the ratio of processor times, which hardly depend on other load."""
    ratio = cost.processor / base.processor
    note = f"{cost.processor:.3f} of {base.processor:.3f} ms; wall {cost.wall / base.wall:.2f}"
    return Figure(measure, where, ratio, ratio, wanted=wanted, note=note)


# ---- status, scrape, state, screen -----------------------------------------------------------------------------------


async def status_figure(folder: Path, extent: Extent) -> Figure:
    """`fleet status --json` from start to end, with all subtasks landed."""
    progress("wide: status")
    for name, count in (("status-wide", extent.wide), ("status-narrow", NARROW)):
        write_journal(folder / name, Width(count, count * FACTS_EACH, AT_ONCE, settled=True))

    async def wide(_: int) -> Cost:
        return _status(folder / "status-wide")

    async def narrow(_: int) -> Cost:
        return _status(folder / "status-narrow")

    costs = await interleave({"wide": wide, "narrow": narrow}, extent.rounds)
    where = f"{extent.wide:,} of {NARROW}"
    return _ratio("wide: fleet status --json", where, typical(costs["wide"]), typical(costs["narrow"]), STATUS)


def _status(state_dir: Path) -> Cost:
    return _verb(state_dir, "status", RUN, "--json")


def verb_figures(folder: Path, extent: Extent) -> list[Figure]:
    """Measure other commands that read a run, in wall and processor time, if most facts are model calls."""
    progress("wide: verbs")
    facts = write_journal(folder / "verbs", Width(extent.wide, extent.wide * MANY_FACTS_EACH, AT_ONCE, settled=True))
    verbs = {
        "status": ("status", RUN),
        "show": ("show", RUN),
        "report": ("report", RUN, "-o", str(folder / "report.html")),
        "watch --plain": ("watch", RUN, "--plain"),
    }
    costs = {name: _verb(folder / "verbs", *words) for name, words in verbs.items()}
    size = (folder / "report.html").stat().st_size / 1e6
    return [
        Figure(
            f"wide: fleet {name}, seconds",
            f"{facts:,} facts",
            cost.wall / 1e3,
            cost.processor / 1e3,
            note=f"a page of {size:.1f} MB" if name == "report" else "",
        )
        for name, cost in costs.items()
    ]


def _verb(state_dir: Path, *words: str) -> Cost:
    command = [sys.executable, "-m", "fleet", *words]
    with Stopwatch() as watch:
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "FLEET_STATE_DIR": str(state_dir)})
    return watch.cost


@dataclass(frozen=True, slots=True)
class _Scraped:
    """A run whose metrics are read."""

    width: Width
    new_facts: int = 50

    @property
    def at_work(self) -> range:
        return range(self.width.subtasks - self.width.agents, self.width.subtasks)


async def scrape_figure(folder: Path, extent: Extent) -> Figure:
    """Measure a scrape of a wide run with 500 agents, compared with a narrow run. Both have new facts to read."""
    progress("wide: scrape")
    wide = _Scraped(Width(extent.wide, extent.wide * FACTS_EACH, agents=500))
    narrow = _Scraped(Width(NARROW, NARROW * FACTS_EACH, agents=50))
    costs: dict[str, Cost] = {}
    for name, run in (("scrape-wide", wide), ("scrape-narrow", narrow)):
        costs[name] = await _scrapes(folder / name, run, 4 * extent.rounds)
    where = f"{extent.wide:,} of {NARROW}"
    return _ratio("wide: a scrape", where, costs["scrape-wide"], costs["scrape-narrow"], SCRAPE)


async def _scrapes(state_dir: Path, run: _Scraped, rounds: int) -> Cost:
    write_journal(state_dir, run.width)
    folder, numbers = RunFolder(_journal(state_dir).parent), run.at_work
    with (
        Journal(folder.journal) as journal,
        engine_lock(folder.journal),
        exporting(lambda: [folder], state_dir, Address("127.0.0.1", 0)) as exporter,
    ):

        async def scrape(number: int) -> Cost:
            chosen = (numbers[each % len(numbers)] for each in range(run.new_facts))
            journal.append([model_call(each, 1, number + 1, at=1_900_000_000.0 + number) for each in chosen])
            with Stopwatch() as watch:
                fetch(exporter.address)
            return watch.cost

        return typical((await interleave({"scrape": scrape}, rounds))["scrape"])


def state_figure(wide: int) -> Figure:
    """The tokens of a planner's `<state>` with all but a hundred subtasks closed."""
    state: RunState | None = None
    for fact in wide_facts(Width(wide, wide * FACTS_EACH, AT_ONCE)):
        state = evolve(state, fact)
    assert state is not None
    view = planner_state(state, state.last_at)
    text = json.dumps(view, ensure_ascii=False, separators=(",", ":"))
    where = f"{wide - AT_ONCE:,} closed"
    return Figure("wide: tokens of a planner's state", where, len(text.encode()) / BYTES_OF_A_TOKEN, wanted=TOKENS)


def _screen(extent: Extent) -> list[Figure]:
    """The terminal UI in front of a wide run, the last wave of which calls its models all the time."""
    width = Width(extent.wide, extent.wide * FACTS_EACH, AT_ONCE)
    names = [subtask_id(number) for number in range(extent.wide - AT_ONCE, extent.wide)]
    return busy_figures(extent.screen_s, extent.keys, list(wide_facts(width)), names, what="wide: screen")
