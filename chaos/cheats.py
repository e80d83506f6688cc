"""Tries to cheat the verdict: cheats for each test runner, and honest work that must land.

    python -m chaos.cheats                         all runners that this machine has
    python -m chaos.cheats unittest make           some of them
    python -m chaos.cheats pytest --cases          each case with what became of it

The engine's code judges each change in real sandboxes, like an attempt before it may land. A cheat lands unnoticed,
lands with a note for review, or is held back. jest and vitest are installed from npm into a separate directory first.
The exit code is 1 if a cheat lands unnoticed, if honest work is held back, or if a runner is missing.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio

from chaos.cheating import (
    Case,
    Runner,
    compiled_cases,
    javascript_cases,
    pytest_cases,
    python_cases,
    script_cases,
)
from fleet.core.base.ids import RunId
from fleet.core.facts import facts as f
from fleet.core.state.state import RunState
from fleet.ports.worktrees import Change
from scripts.frame import Figure, Table, add_names, command_line, exit_with, progress, temporary_folder
from tests.attacks.court import SECONDS, Court, criteria, failure
from tests.worktrees.conftest import Bench, make_repository, product_settings
from worktrees.base.settings import WorktreeSettings
from worktrees.leases.run_worktrees import open_worktrees
from worktrees.target.target import inspect

RUNNERS = {
    runner.name.split()[0]: runner
    for module in (python_cases, pytest_cases, javascript_cases, compiled_cases, script_cases)
    for runner in module.RUNNERS
}
INSTALL_S = 600
Result = Literal["landed", "named", "held", "no cheat"]


@dataclass(frozen=True)
class Verdict:
    """Result of a case."""

    case: Case
    result: Result
    why: str

    @property
    def is_as_wanted(self) -> bool:
        return self.result != "held" if self.case.honest else self.result != "landed"


# ---- judging -------------------------------------------------------------------------------------------------------


async def judge(runner: Runner, cases: Sequence[Case], folder: Path) -> list[Verdict]:
    """The verdicts on these cases, in order."""
    settings = _settings(runner, folder, install(runner, folder / "packages"))
    verdicts = list[Verdict]()
    for number, case in enumerate(cases):
        project = {**runner.project, **case.base}
        files = {path: content for path, content in project.items() if content is not None}
        repository = make_repository(folder / f"project-{number}", files)
        async with _bench(repository, settings) as bench:
            verdicts.append(await _verdict(Court(bench), runner, case))
        progress(f"{runner.name} {number + 1}/{len(cases)}: {case.name}: {verdicts[-1].result}")
        shutil.rmtree(folder / "state", ignore_errors=True)
        shutil.rmtree(repository)
    return verdicts


async def _verdict(court: Court, runner: Runner, case: Case) -> Verdict:
    runs = case.checks or (runner.check,)
    change = await court.change(case.files, links=case.links, touches=case.touches)
    if isinstance(change, f.Failure):
        return Verdict(case, "held", change.summary)
    state = await court.judge(change, *runs, guards=case.guards, touches=case.touches, gate=case.gate)
    result, why = _result(state)
    if result == "held" and not case.honest and not await _fools(court, change, (*runs, *case.guards)):
        return Verdict(case, "no cheat", "red by its exit code alone")
    return Verdict(case, result, why)


def _result(state: RunState) -> tuple[Result, str]:
    refused = failure(state)
    if refused is not None:
        return "held", refused.summary
    notes = [text.removeprefix("for review: a: ") for text in state.warnings]
    return ("named", "; ".join(notes)) if notes else ("landed", "")


async def _fools(court: Court, change: Change, runs: Iterable[str]) -> bool:
    """Whether all checks exit with 0, one after another on one checkout."""
    async with court.bench.worktrees.lease(change.commit) as lease:
        return all([(await lease.check(each)).exit_code == 0 for each in criteria(*runs)])


@asynccontextmanager
async def _bench(repository: Path, settings: WorktreeSettings) -> AsyncIterator[Bench]:
    target = await inspect(repository)
    async with open_worktrees(target, settings, RunId("r1"), target.base) as worktrees:
        yield Bench(repository, target, settings, worktrees)


# ---- runners -------------------------------------------------------------------------------------------------------


def missing(runner: Runner) -> list[str]:
    """The programs that a runner needs and this machine does not have."""
    return [name for name in runner.needs if _program(name) is None]


def _program(name: str) -> Path | None:
    """Return the path of a program behind rustup's proxy."""
    rustup = shutil.which("rustup")
    if name == "cargo" and rustup is not None:
        done = subprocess.run([rustup, "which", name], capture_output=True, text=True, check=False)
        return Path(done.stdout.strip()) if done.returncode == 0 else None
    found = shutil.which(name) or shutil.which(name, path="/usr/lib/go/bin:/usr/local/go/bin")
    return Path(found).resolve() if found is not None and name == "go" else Path(found) if found else None


def _settings(runner: Runner, folder: Path, modules: Path | None) -> WorktreeSettings:
    """The product's own, with the programs of the runner shown."""
    shown, path = [Path(sys.prefix)], [Path(sys.prefix, "bin")]
    for name in {"go", "cargo"}.intersection(runner.needs):
        if (program := _program(name)) is not None:
            path.append(program.parent)
            shown.append(program.parent.parent)
    if modules is not None:
        shown.append(modules.parent)
    environment = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "GOCACHE": "/tmp/go",  # noqa: S108 - of the box
        "GOFLAGS": "-mod=mod",
        "GOTOOLCHAIN": "local",
        "NO_COLOR": "1",
    }
    return product_settings(
        folder / "state",
        read_only=tuple(shown),
        path=(*path, Path("/usr/local/bin"), Path("/usr/bin"), Path("/bin")),
        environment=environment,
        setup=f"mkdir node_modules && ln -s {modules}/* {modules}/.bin node_modules/" if modules is not None else "",
    )


def install(runner: Runner, folder: Path) -> Path | None:
    """Return the directory of installed packages, or None if the runner needs none. Raises `CalledProcessError`."""
    if not runner.packages:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text("{}", encoding="utf-8")
    progress(f"installing {' '.join(runner.packages)}")
    npm = ("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *runner.packages)
    subprocess.run(npm, cwd=folder, check=True, capture_output=True, timeout=INSTALL_S)
    return folder / "node_modules"


# ---- the table -----------------------------------------------------------------------------------------------------


def figures(name: str, verdicts: Sequence[Verdict]) -> tuple[Figure, Figure]:
    cheats = [verdict for verdict in verdicts if not verdict.case.honest]
    controls = [verdict for verdict in verdicts if verdict.case.honest]
    number = {result: sum(verdict.result == result for verdict in cheats) for result in ("held", "named", "no cheat")}
    note = f"{number['held']} held, {number['named']} named for review"
    note += f", {number['no cheat']} red anyway" if number["no cheat"] else ""
    silent = sum(verdict.result == "landed" for verdict in cheats)
    held = sum(verdict.result == "held" for verdict in controls)
    quiet = sum(verdict.result == "landed" for verdict in controls)
    return (
        Figure(f"{name}: of {len(cheats)} cheats, landed without a word", "verdict", silent, wanted=0, note=note),
        Figure(
            f"{name}: of {len(controls)} honest changes, held back",
            "verdict",
            held,
            wanted=0,
            note=f"{quiet} landed without a note",
        ),
    )


def details(verdicts: Iterable[Verdict], *, every: bool) -> tuple[str, ...]:
    return tuple(
        re.sub(
            r"\s+", " ", f"{'control' if each.case.honest else 'cheat'}: {each.case.name}: {each.result} {each.why}"
        )[:300]
        for each in verdicts
        if every or not each.is_as_wanted
    )


def main() -> int:
    parser = command_line("chaos.cheats", __doc__)
    add_names(parser, "RUNNER", RUNNERS)
    parser.add_argument("--cases", action="store_true", help="show each case, not only those that went wrong")
    chosen = parser.parse_args()
    table = Table("cheats of verdicts")
    for name in chosen.names or RUNNERS:
        runner = RUNNERS[name]
        if lacking := missing(runner):
            table.add(Figure(f"{name}: programs missing: {', '.join(lacking)}", "machine", len(lacking), wanted=0))
            continue
        progress(f"{name}: {len(runner.cases)} cases, at most {SECONDS} s a check")
        with temporary_folder() as folder:
            verdicts = anyio.run(judge, runner, runner.cases, folder)
        table.add(*figures(runner.name, verdicts), details=details(verdicts, every=chosen.cases))
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
