"""A run of ten thousand subtasks on a real repository, with faults and kills: it lands, and its levels are stable.

    python -m chaos.wide                                   10,000 subtasks, 10,000 files, 200 workers, 5 % faults
    python -m chaos.wide --subtasks 300 --workers 40       minutes instead of an hour
    python -m chaos.wide --report soak.html                also a page with the plot

The program, git, the sandboxes and the journal are real. The workers are shell scripts (kind `command`), so no model is
called. The engine is killed (SIGKILL) at landings that the seed chooses, and resumed. Between these kills, a helper
process is killed: a git or the sandbox launcher. At the end, every landed commit is checked against its subtask, the
last tree against the gate, and the journal against git (`fleet audit`).
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from chaos.repeatable_run import processes_of
from chaos.wide_levels import (
    GROWING,
    LEVELS,
    Sample,
    count_files,
    disk_mb,
    engine_levels,
    growth_over_middle,
    html_plot,
    late_over_early,
    text_plot,
)
from chaos.wide_work import CONFIGURATION, WideWork
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, Table, command_line, exit_with, progress, temporary_folder
from tests.worktrees.conftest import git

RUN, BRANCH, NO_SERVICE = "wide", "fleet/wide", "http://127.0.0.1:9"
EVERY_S = 1.0  # between two samples
SLOW_EVERY = 10  # samples between two looks at all files
SILENT_S = 600.0  # without a landing: the run is stuck
WORKER_S = 20.0  # how long an attempt may take
LEVEL, GROWTH = 1.25, 1.5  # how much more in the last third of what lands than before


@dataclass
class Soak:
    """One wide run, its lives and its samples."""

    work: WideWork
    workers: int
    kills: int
    project: Path
    home: Path
    samples: list[Sample] = field(default_factory=list)
    killed_at: list[int] = field(default_factory=list)
    helpers_killed: int = 0
    engines: set[int] = field(default_factory=set)
    landed: int = 0
    verified: int = 0
    problem: str = ""
    _seq: int = 0
    _files: tuple[int, int, float] = (0, 0, 0.0)

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.home / "state" / "runs" / RUN)

    def run(self) -> None:
        """Run, kill and resume until an engine ends by itself."""
        chance, total = Random(self.work.seed), self.work.subtasks  # noqa: S311 - not a secret
        ends = sorted(chance.sample(range(total // 20 + 1, total * 19 // 20), self.kills))
        plan = self.home / "plan.json"
        first = ("run", "--plan", str(plan), "--name", RUN, "--yes", "--base-url", NO_SERVICE)
        command: tuple[str, ...] = (*first, "--repo", str(self.project))
        for kill_at in (*ends, None):
            with self._engine(command) as engine:
                self._watch(engine, kill_at, chance)
            if self.problem or kill_at is None:
                return
            command = ("resume", RUN, "--yes", "--repo", str(self.project))

    @contextmanager
    def _engine(self, command: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
        with (self.home / "output").open("ab") as output:
            engine = subprocess.Popen(
                [sys.executable, "-m", "fleet", *command], env=self.environment, stdout=output, stderr=output
            )
            self.engines.add(engine.pid)
            try:
                yield engine
            finally:
                if engine.poll() is None:
                    engine.kill()
                engine.wait()

    @property
    def environment(self) -> dict[str, str]:
        state = str(self.home / "state")
        plain = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "LANG": "C.UTF-8"}
        return plain | {"HOME": str(self.home), "FLEET_STATE_DIR": state}

    def _watch(self, engine: subprocess.Popen[bytes], kill_at: int | None, chance: Random) -> None:
        """Sample until the engine ends, or kill it after this many landings."""
        quiet_since, before = time.monotonic(), self.landed
        helper_at = self.landed + chance.randrange(1, max(2, self.work.subtasks // (4 * (self.kills + 1))))
        while engine.poll() is None:
            self._sample(engine.pid)
            if self.landed != before:
                quiet_since, before = time.monotonic(), self.landed
            if time.monotonic() - quiet_since > SILENT_S:
                self.problem = f"nothing landed for {SILENT_S:.0f} s, after {self.landed} subtasks"
                return
            if self.landed >= helper_at:
                helper_at = self.work.subtasks + 1
                self._kill_a_helper(engine.pid, chance)
            if kill_at is not None and self.landed >= kill_at:
                engine.kill()
                self.killed_at.append(self.landed)
                progress(f"killed the engine after {self.landed} subtasks")
                return
            time.sleep(EVERY_S)
        self._sample(engine.pid)
        if engine.returncode:
            self.problem = f"exit code {engine.returncode}: {(self.home / 'output').read_text()[-2000:]}"

    def _kill_a_helper(self, pid: int, chance: Random) -> None:
        """Kill one of the programs that an engine keeps open, as a machine without memory does."""
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        lines = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
        helpers = [child for child, line in lines.items() if line.startswith(b"git\0") or b"launcher_main" in line]
        if helpers:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(sorted(helpers)), signal.SIGKILL)
                self.helpers_killed += 1

    def _sample(self, pid: int) -> None:
        self._read_journal()
        if len(self.samples) % SLOW_EVERY == 0:
            store = next((self.home / "state" / "stores").glob("*/fleet.git"), Path("/nonexistent"))
            refs, objects = count_files(store / "refs"), count_files(store / "objects")
            self._files = (refs, objects, disk_mb(self.home / "state"))
        processes, descriptors, memory = engine_levels(pid)
        seconds = time.monotonic() - self._began
        queue = self.verified - self.landed
        self.samples.append(Sample(seconds, self.landed, queue, processes, descriptors, memory, *self._files))

    _began: float = field(default_factory=time.monotonic)

    def _read_journal(self) -> None:
        """Read landed and waiting subtasks from the facts since the last call."""
        with suppress(sqlite3.OperationalError), closing(_reader(self.folder.journal)) as rows:
            kinds = "('batch_tested', 'attempt_verified')"
            query = f"select seq, kind, body from facts where seq > ? and kind in {kinds} order by seq"  # noqa: S608
            for seq, kind, body in rows.execute(query, (self._seq,)):
                self._seq = seq
                if kind == "batch_tested":
                    fact = json.loads(body)
                    self.landed += len(fact["landed"])
                    self.verified -= len(fact["ejected"])
                else:
                    self.verified += 1


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


# ---- afterwards ------------------------------------------------------------------------------------------------------


def violations(soak: Soak, base: str) -> list[str]:
    """Everything that is wrong after the run."""
    if soak.problem:
        return [soak.problem]
    state = soak.folder.state()
    found = list(soak.work.wrong(soak.project, base, BRANCH))
    if state.ending != "landed":
        found.append(f"the run ended as {state.ending}: {state.ending_why}")
    found += [f"a person was asked: {question.text}" for question in state.open_questions()]
    if left := processes_of(soak.engines):
        found.append(f"{len(left)} processes are left of it")
    if leases := list((soak.home / "state" / "stores").glob("*/slots/*/*")):
        found.append(f"{len(leases)} worktrees are left, such as {leases[0]}")
    if git(soak.project, "status", "--porcelain"):
        found.append("the user's checkout has changed")
    tree = soak.home / "tree"
    git(soak.project, "worktree", "add", "--quiet", "--detach", str(tree), BRANCH)
    if subprocess.run(["sh", "tools/gate.sh"], cwd=tree, check=False).returncode:
        found.append("the gate is red on the last tree")
    audit = [sys.executable, "-m", "fleet", "audit", RUN, "--json"]
    done = subprocess.run(audit, env=soak.environment, cwd=soak.project, capture_output=True, check=False)
    if done.returncode:
        found.append(f"fleet audit: {(done.stdout + done.stderr).decode()[-1000:]}")
    return found


def figures(soak: Soak, found: list[str]) -> list[Figure]:
    where, samples = f"{soak.work.subtasks:,} subtasks", soak.samples
    faults = Counter(soak.work.faults.values())
    kills = f"{len(soak.killed_at)} kills, {soak.helpers_killed} of helpers"
    note = f"{sum(faults.values())} faults of {len(faults)} kinds, {kills}"
    hours = samples[-1].seconds / 3600 if samples else 0.0
    rate = soak.landed / hours if hours else 0.0
    rows = [
        Figure("violations, a wide run", where, len(found), wanted=0, note=note),
        Figure("landed", where, soak.landed, wanted=soak.work.subtasks, at_least=True, note=f"{rate:,.0f} an hour"),
    ]
    for name in LEVELS:
        label = f"{name.replace('_', ' ')}, last third of the rest"
        rows.append(Figure(label, where, late_over_early(samples, name), wanted=LEVEL))
    for name in GROWING:
        label = name.replace("_", " ")
        most = max((getattr(sample, name) for sample in samples), default=0)
        each = f"most {most:,.0f}"
        growth = growth_over_middle(samples, name)
        rows.append(Figure(f"{label} a subtask, last third of middle", where, growth, wanted=GROWTH, note=each))
    return rows


def main() -> int:
    parser = command_line("chaos.wide", __doc__)
    parser.add_argument("--subtasks", type=int, default=10_000, metavar="N")
    parser.add_argument("--files", type=int, default=10_000, metavar="N", help="files of the repository")
    parser.add_argument("--workers", type=int, default=200, metavar="N")
    parser.add_argument("--faults", type=float, default=0.05, metavar="SHARE", help="of the subtasks that meet a fault")
    parser.add_argument(
        "--kills", type=int, metavar="N", help="kills of the engine (one for 3,000 subtasks, at least 2)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page with the plot")
    parser.add_argument("--folder", type=Path, help="generate files in this folder instead of in memory")
    args = parser.parse_args()
    kills = max(2, args.subtasks // 3_000) if args.kills is None else args.kills
    table = Table(f"a run of {args.subtasks:,} subtasks in {args.files:,} files, {args.workers} workers")
    with temporary_folder(args.folder) as folder:
        work = WideWork(args.subtasks, args.faults, args.seed)
        base = work.make(folder / "project", args.files)
        soak = Soak(work, args.workers, kills, folder / "project", folder / "home")
        configuration = soak.home / ".config" / "fleet" / "config.toml"
        configuration.parent.mkdir(parents=True)
        configuration.write_text(CONFIGURATION.format(workers=args.workers, time_s=WORKER_S), encoding="utf-8")
        (soak.home / "plan.json").write_text(work.plan(), encoding="utf-8")
        soak.run()
        found = violations(soak, base)
    rows, plot = figures(soak, found), list(text_plot(soak.samples))
    table.add(*rows, details=tuple(found[:20]))
    table.add(details=tuple(plot))
    if args.report is not None:
        title = f"A run of {args.subtasks:,} subtasks in {args.files:,} files with {args.workers} workers"
        text = "\n".join((*map(str, rows), "", *plot))
        args.report.write_text(html_plot(title, soak.samples, soak.killed_at, text), encoding="utf-8")
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
