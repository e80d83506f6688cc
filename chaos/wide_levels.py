"""Resource use of a wide run: samples, checks that they level off, and their plot."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from html import escape
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 460, 150, 44  # of a panel, in pixels
BLOCKS = "▁▂▃▄▅▆▇█"
SHOWN = 60  # characters of a line of blocks
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass(frozen=True)
class Sample:
    """The machine at one moment. All but the first two are what levels off, or grows with what landed."""

    seconds: float
    landed: int
    queue: int
    """Verified, and not landed."""
    processes: int
    descriptors: int
    memory_mb: float
    """Of the engine."""
    loose_refs: int
    loose_objects: int
    disk_mb: float
    """Of the state directory."""


SERIES = tuple(field.name for field in fields(Sample))[2:]
LEVELS = ("processes", "descriptors", "loose_refs", "loose_objects")
"""Resources that must not depend on the number of landings, because they are released or packed."""
GROWING = ("memory_mb", "disk_mb")
"""Resources that grow with the history."""


def engine_levels(pid: int) -> tuple[int, int, float]:
    """Return processes, descriptors and megabytes of an engine, or zeros once it has ended."""
    with suppress(OSError, ValueError):
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KB / 1024
        return len(list(_tree(pid))), len(list(Path(f"/proc/{pid}/fd").iterdir())), resident
    return 0, 0, 0.0


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from _tree(int(child))


def count_files(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def disk_mb(folder: Path) -> float:
    """Megabytes that the files take on the disk."""
    blocks = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                blocks += os.lstat(os.path.join(at, name)).st_blocks  # noqa: PTH118 - very many files
    return blocks * 512 / 2**20


# ---- whether it levels off -------------------------------------------------------------------------------------------


def late_over_early(samples: Sequence[Sample], name: str) -> float:
    """Return the maximum during the last third of landings, divided by the maximum before.

    The load of an engine varies with its work and with the machine. Leaks increase the maximum.
    """
    early, late = [*_third(samples, name, 0), *_third(samples, name, 1)], _third(samples, name, 2)
    return max(late) / max(early) if early and late else 0.0


def growth_over_middle(samples: Sequence[Sample], name: str) -> float:
    """Return the growth per landed subtask in the last third, divided by that of the middle third."""
    rates = []
    for part in (1, 2):
        among = _of_third(samples, part)
        if len(among) < 2:
            return 0.0
        first, last = among[0], among[-1]
        rates.append((getattr(last, name) - getattr(first, name)) / max(1, last.landed - first.landed))
    return float(rates[1] / max(1e-9, rates[0]))


def _third(samples: Sequence[Sample], name: str, part: int) -> list[float]:
    return [value for sample in _of_third(samples, part) if (value := getattr(sample, name)) > 0]


def _of_third(samples: Sequence[Sample], part: int) -> list[Sample]:
    total = max((sample.landed for sample in samples), default=0)
    return [sample for sample in samples if part * total <= 3 * sample.landed < (part + 1) * total]


# ---- plots -----------------------------------------------------------------------------------------------------------


def text_plot(samples: Sequence[Sample]) -> Iterator[str]:
    """A line for each series, from the first landed subtask to the last."""
    for name in SERIES:
        values = [getattr(sample, name) for sample in samples]
        top = max(values, default=0)
        step = max(1, len(values) / SHOWN)
        shown = (values[int(at * step)] for at in range(min(SHOWN, len(values))))
        blocks = "".join(BLOCKS[min(7, int(8 * value / top))] if top else BLOCKS[0] for value in shown)
        last = values[-1] if values else 0
        yield f"{name.replace('_', ' '):<14} {blocks}  most {top:,.0f}, at the end {last:,.0f}"


def html_plot(title: str, samples: Sequence[Sample], kills: Sequence[int], table: str) -> str:
    """Return a page with a panel for each series over the landed subtasks.

    A line marks each kill. It loads no other files.
    """
    panels = "\n".join(_panel(name, samples, kills) for name in SERIES)
    rows = "\n".join(",".join(f"{value:g}" for value in astuple(sample)) for sample in samples)
    head = ",".join(field.name for field in fields(Sample))
    return (
        f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{font:14px sans-serif;margin:2em}svg{margin:0 1em 1em 0}pre{font-size:12px}</style>"
        f"<h1>{escape(title)}</h1><p>Over the subtasks that have landed. Red lines: kill -9 of the engine.</p>"
        f"{panels}<pre>{escape(table)}</pre><details><summary>All samples</summary><pre>{head}\n{rows}</pre></details>"
    )


def _panel(name: str, samples: Sequence[Sample], kills: Sequence[int]) -> str:
    right = max((sample.landed for sample in samples), default=0) or 1
    top = max((getattr(sample, name) for sample in samples), default=0) or 1

    def x(landed: float) -> float:
        return MARGIN + landed / right * (WIDTH - MARGIN - 10)

    def y(value: float) -> float:
        return HEIGHT - 20 - value / top * (HEIGHT - 45)

    points = " ".join(f"{x(sample.landed):.1f},{y(getattr(sample, name)):.1f}" for sample in samples)
    lines = "".join(f'<path d="M{x(kill):.1f} 25V{HEIGHT - 20}" stroke="#c33" stroke-dasharray="3"/>' for kill in kills)
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" font-size="11"><text x="{MARGIN}" y="14" font-weight="bold">'
        f'{escape(name.replace("_", " "))}</text><text x="2" y="{y(top):.0f}">{top:,.0f}</text>'
        f'<text x="2" y="{y(0):.0f}">0</text><text x="{WIDTH - 60}" y="{HEIGHT - 5}">{right:,}</text>'
        f'<path d="M{MARGIN} 25V{HEIGHT - 20}H{WIDTH - 10}" fill="none" stroke="#888"/>{lines}'
        f'<polyline points="{points}" fill="none" stroke="#06c"/></svg>'
    )
