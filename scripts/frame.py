"""The framework of the benchmark and chaos programs: command line, output, folders, processes, exit codes.

It is in `scripts/` because `bench/` and `chaos/` both use it and neither depends on the other. It does not import the
product.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NoReturn

IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the one file system that every Linux keeps in memory
MET, MISSED, INTERRUPTED = 0, 1, 130


# ---- command line ----------------------------------------------------------------------------------------------------


def command_line(program: str, description: str | None) -> argparse.ArgumentParser:
    """A parser whose --help shows the module's docstring as it is written, examples included."""
    return argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_names(parser: argparse.ArgumentParser, metavar: str, names: Collection[str]) -> None:
    """Let the user choose some of these names. Default: all."""

    def known(name: str) -> str:
        if name not in names:
            raise argparse.ArgumentTypeError(f"unknown: {name!r} (choose from {', '.join(names)})")
        return name

    text = f"one or more of: {', '.join(names)} (default: all)"
    parser.add_argument("names", nargs="*", type=known, metavar=metavar, help=text)


def add_jobs(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--jobs", type=int, metavar="N", default=default, help=f"number of concurrent runs (default: {default})"
    )


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Run the program and exit with the code that it returns, or with 130 after Ctrl-C."""
    try:
        code = main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


# ---- output ----------------------------------------------------------------------------------------------------------


def say(*lines: object) -> None:
    """Print lines of the result."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def progress(text: str) -> None:
    """Show progress on stderr. It is not part of the result."""
    sys.stderr.write(f"... {text}\n")
    sys.stderr.flush()


def machine() -> str:
    """The machine's cores and its load, for the first and the last line of a result."""
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    return f"{os.cpu_count()} cores, load {load}"


@dataclass(frozen=True)
class Figure:
    """One row of the table: a value, and the value that is wanted."""

    measure: str
    where: str
    value: float
    processor: float | None = None
    wanted: float | None = None
    at_least: bool = False
    most: float | None = None
    """With `at_least`: also at most this."""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """None if no value is wanted."""
        if self.wanted is None:
            return None
        if self.most is not None and self.value > self.most:
            return False
        return self.value >= self.wanted if self.at_least else self.value <= self.wanted

    def __str__(self) -> str:
        value = str(self.value) if isinstance(self.value, int) else f"{self.value:.4f}"
        processor = "" if self.processor is None else f"{self.processor:.4f}"
        sign = "at least" if self.at_least else "at most"
        wanted = "" if self.wanted is None else f"{sign} {self.wanted:g}"
        if self.most is not None:
            wanted = f"{self.wanted:g} to {self.most:g}"
        verdict = {None: "", True: "met", False: "NOT MET"}[self.met]
        cells = f"{self.measure:<60}{self.where:>15}  {value:>10}{processor:>11}  {wanted:<15}{verdict:<9}"
        return f"{cells}{self.note}".rstrip()


class Table:
    """Prints figures as they are added, and at the end those that miss their target."""

    def __init__(self, subject: str) -> None:
        self.figures: list[Figure] = []
        self._started = monotonic()
        head = f"{'measure':<60}{'where':>15}  {'figure':>10}{'processor':>11}  wanted"
        say(f"{subject}; {machine()}", "", head)

    def add(self, *figures: Figure, details: tuple[str, ...] = ()) -> None:
        """Print figures, and below them indented lines of details."""
        self.figures += figures
        say(*figures, *(f"    {line}" for line in details))

    def finish(self) -> int:
        """Print the summary and return the exit code: 1 if a figure misses its target."""
        targets = [figure for figure in self.figures if figure.met is not None]
        missed = [figure for figure in targets if not figure.met]
        seconds = monotonic() - self._started
        say("", f"{len(targets) - len(missed)} of {len(targets)} targets met in {seconds:.0f} s; {machine()}")
        if missed:
            say("not met:", *missed)
        return MISSED if missed else MET


# ---- folders and processes -------------------------------------------------------------------------------------------


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder that is removed at the end: in `parent`, else in memory, else where the system keeps temporary files."""
    place = parent or (IN_MEMORY if IN_MEMORY.is_dir() else None)
    with TemporaryDirectory(prefix="fleet-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def forked_processes(jobs: int) -> Executor:
    """Run tasks concurrently in processes forked from this one, which has imported everything and has no threads."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork"))
