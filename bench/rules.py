"""Requests that the real service would refuse, over demo, examples and chaos: the programs as they are, one by one.

Each prints how many requests its simulated models got and how many of them broke a rule, and fails if any did.
"""

import subprocess
import sys
from pathlib import Path

from anyio import to_thread

from bench.side_by_side import SMALL, Extent
from scripts.frame import Figure, progress
from scripts.simulated import counted

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 3_600.0
EPISODES, FEW = 40, 5
LEVELS = 5


async def rule_break_figures(extent: Extent) -> list[Figure]:
    small = extent.simulated_hours <= SMALL.simulated_hours
    return await to_thread.run_sync(_figures, small)


def _figures(small: bool) -> list[Figure]:
    demos: list[tuple[str, tuple[str, ...]]] = [("demo, 16 subtasks", ("examples/demo/demo.py", "--subtasks", "16"))]
    if not small:
        demos.append(("demo, 120 subtasks", ("examples/demo/demo.py", "--subtasks", "120", "--workers", "120")))
    research = ("the research example", ("examples/research/research.py",))
    chaos = ("-B", "-m", "chaos.rates", "--episodes", str(FEW if small else EPISODES), "--jobs", "2")
    levels = [(f"chaos, L{level}", (*chaos, "--level", str(level))) for level in range(1, LEVELS + 1)]
    return [_figure(name, command) for name, command in (*demos, research, *levels)]


def _figure(where: str, command: tuple[str, ...]) -> Figure:
    """Raises `RuntimeError` if the program does not say how many requests it made."""
    progress(where)
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    requests, broken = counted([*done.stdout.splitlines(), *done.stderr.splitlines()])
    if not requests:
        raise RuntimeError(f"{' '.join(command)} made no request: {done.stderr[-2_000:]}")
    note = f"{requests:,} requests, exit code {done.returncode}"
    return Figure("requests that break a rule", where, broken, wanted=0, note=note)
