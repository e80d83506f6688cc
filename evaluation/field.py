"""The runs of an evaluation: which are made, what they may cost, and the results that are kept."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any

from dashboards.text.formats import counted
from evaluation.cases import Case
from evaluation.judge import box_settings, judge
from evaluation.runs import Order, Played, Service, play
from evaluation.score import Score
from evaluation.versions import Version, program_with
from fleet.errors import FleetError
from scripts.frame import progress
from worktrees.base.settings import WorktreeSettings

RESULTS = "results.jsonl"
PRETENDED = 2.0  # dollars that a run with a stand-in may pretend to cost
Play = Callable[[Order, Service, Path, Path, Event], Played]
Map = Callable[[Callable[[Order], "Result"], Iterable[Order]], Iterator["Result"]]


@dataclass(frozen=True, slots=True)
class Field:
    """Every case with every version and every seed."""

    cases: Sequence[Case]
    versions: Sequence[Version]
    orders: Sequence[Order]
    dollars: float
    """Maximum cost of all runs."""

    def announcement(self, *, simulated: bool) -> str:
        runs, each = len(self.orders), self.dollars / len(self.orders)
        seeds = runs // len(self.cases) // len(self.versions)
        factors = ((len(self.cases), "case"), (len(self.versions), "prompt version"), (seeds, "seed"))
        what = f"{' x '.join(counted(*factor) for factor in factors)} = {counted(runs, 'run')}"
        if simulated:
            return f"{what} with a simulated model, free of charge"
        return f"{what}, at most ${each:.2f} each: at most ${self.dollars:.2f}"


@dataclass(frozen=True, slots=True)
class Result:
    """The score of one run."""

    case: str
    version: str
    """The digest of its prompts."""
    seed: int
    score: Score

    def document(self) -> dict[str, Any]:
        return {"case": self.case, "version": self.version, "seed": self.seed, "score": self.score.document()}


def plan_field(
    cases: Sequence[Case], versions: Sequence[Version], seeds: int, *, budget: float | None, minutes: float
) -> Field:
    """The runs of one case and seed follow each other, so that an evaluation that is stopped has pairs."""
    number = len(cases) * len(versions) * seeds
    dollars = budget if budget is not None else PRETENDED * number
    orders = [
        Order(case, version, seed, dollars / number, minutes)
        for seed in range(1, seeds + 1)
        for case in cases
        for version in versions
    ]
    return Field(cases, versions, orders, dollars)


def play_field(
    field: Field, service: Service, folder: Path, side_by_side: Map = map, *, play: Play = play
) -> list[Result]:
    """Return the results of all runs, reusing those in `folder`. Raises `FleetError`."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kept = Kept(folder / RESULTS)
    programs: dict[str, Path] = {}
    for version in field.versions:
        place = folder / f"program-{version.digest}"
        shutil.rmtree(place, ignore_errors=True)
        programs[version.digest] = program_with(version, place)
    boxes, stopping = box_settings(service, folder), Event()
    rest = Circumstances(service, folder, programs, kept, boxes, play)
    try:
        return list(side_by_side(partial(_result, rest, stopping), field.orders))
    finally:
        stopping.set()  # after an error or a Ctrl-C, no other run may go on spending


@dataclass(frozen=True)
class Circumstances:
    """Settings shared by all runs of an evaluation."""

    service: Service
    folder: Path
    programs: Mapping[str, Path]
    """The program of each version, by the digest of its prompts."""
    kept: "Kept"
    boxes: WorktreeSettings
    play: Play


def _result(rest: Circumstances, stopping: Event, order: Order) -> Result:
    if (known := rest.kept.find(order, rest.service)) is not None:
        return known
    place = rest.folder / order.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    played = rest.play(order, rest.service, rest.programs[order.version.digest], place, stopping)
    result = Result(order.case.name, order.version.digest, order.seed, judge(order.case, played, rest.boxes))
    rest.kept.add(result, rest.service)
    score = result.score
    shown = f"{score.landed} of {score.planned} landed, ${score.dollars:.4f}"
    progress(f"{order.case.name}, seed {order.seed}, {order.version.name}: {shown}")
    return result


class Kept:
    """Results in a file, a line each, so that an evaluation that was stopped continues."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._known = {self._key(each["at"], each): self._read(each) for each in _lines(path)}

    def find(self, order: Order, service: Service) -> Result | None:
        key = (_place(service), order.case.name, order.version.digest, order.seed)
        return self._known.get(key)

    def add(self, result: Result, service: Service) -> None:
        line = json.dumps({"at": _place(service), **result.document()})
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    @staticmethod
    def _key(at: str, each: dict[str, Any]) -> tuple[str, str, str, int]:
        return at, each["case"], each["version"], each["seed"]

    @staticmethod
    def _read(each: dict[str, Any]) -> Result:
        return Result(each["case"], each["version"], each["seed"], Score(**each["score"]))


def _place(service: Service) -> str:
    """Return the service and configuration of a result. Results of different ones are not mixed."""
    return f"{service.url or 'stand-in'} {service.config or ''}".strip()


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            read = json.loads(line)
            Kept._read(read)  # noqa: SLF001 - of this module
        except (ValueError, TypeError, KeyError):
            raise FleetError(
                f"{path}, line {number}, is not an evaluation result; use another directory with --keep"
            ) from None
        yield read
