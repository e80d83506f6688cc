"""The rungs in a report: what each cost and landed, which subtasks began on it, and the frontier that they make.

A rung is on the frontier if no other one lands more of its attempts for fewer dollars per landed subtask.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dashboards.report.blocks import Block, Cell, Code, Dot, Dots, Table
from dashboards.text.formats import counted, money
from dashboards.text.rung_text import landed, rung_name
from fleet.core.plans.rungs import SIZES, Size
from fleet.core.policy.ladder import evidence, rung_options
from fleet.core.state.facts import RungOption
from fleet.core.state.state import RunState


@dataclass(frozen=True, slots=True)
class RungReport:
    """One rung for subtasks of one size, by all that is known at the end of the run."""

    worker: str
    size: Size
    option: RungOption
    began: int
    """How many subtasks of this run began on it."""
    explored: int
    """How many of these to find out more about it."""
    on_frontier: bool


def rung_reports(state: RunState) -> list[RungReport]:
    """Of the ladders of a run, for the sizes of subtasks that began on them."""
    began, explored = Counter[tuple[str, Size, int]](), Counter[tuple[str, Size, int]]()
    for subtask in state.subtasks.values():
        first = next((attempt for attempt in subtask.attempts if attempt.choice is not None), None)
        if first is not None and first.choice is not None:
            key = (first.worker, first.size, first.choice.rung)
            began[key] += 1
            explored[key] += first.choice.why == "explored"
    reports = []
    for worker, ladder in state.policy.rungs.items():
        seen = evidence((*state.past, *state.tallies.values()), worker)
        for size in SIZES:
            if not any(key[:2] == (worker, size) for key in began):
                continue
            options = rung_options(ladder, seen, size, attempts=state.policy.max_attempts)
            reports += [
                RungReport(
                    worker,
                    size,
                    option,
                    began[worker, size, index],
                    explored[worker, size, index],
                    on_frontier=not any(_beats(other, option) for other in options),
                )
                for index, option in enumerate(options)
            ]
    return reports


def _beats(one: RungOption, other: RungOption) -> bool:
    if one.per_landed is None or other.per_landed is None:
        return False
    no_worse = one.per_landed <= other.per_landed and one.lands >= other.lands
    return no_worse and (one.per_landed < other.per_landed or one.lands > other.lands)


def rung_blocks(reports: Sequence[RungReport]) -> Iterator[Block]:
    """A picture for each worker and size, and a table of all."""
    if not reports:
        return
    for worker, size in dict.fromkeys((report.worker, report.size) for report in reports):
        yield from _picture([report for report in reports if (report.worker, report.size) == (worker, size)])
    rows = [_row(report) for report in reports]
    head = ("rung", "worker", "size", "landed", "expected to land", "an attempt", "per landed subtask", "began on it")
    yield Table("Rungs, by all that was seen until the end of this run", head, rows, frozenset({3, 4, 5, 6, 7}))


def _picture(reports: Sequence[RungReport]) -> Iterator[Block]:
    worker, size = reports[0].worker, reports[0].size
    dots = [
        Dot(
            rung_name(report.option),
            report.option.per_landed,
            report.option.lands,
            report.began > 0,
            report.on_frontier,
        )
        for report in reports
        if report.option.per_landed is not None
    ]
    if len(dots) > 1:
        chosen = max(reports, key=lambda report: report.began)
        summary = (
            f"{counted(sum(report.began for report in reports), f'{size} subtask')} of {worker}; most began with "
            f"{rung_name(chosen.option)}, for {money(chosen.option.per_landed)} per landed subtask."
        )
        yield Dots(f"Rungs of {worker} for {size} subtasks", summary, dots)


def _row(report: RungReport) -> list[Cell]:
    option = report.option
    began = str(report.began) + (f", {report.explored} to find out more" if report.explored else "")
    return [
        Code(rung_name(option)),
        report.worker,
        report.size,
        landed(option),
        f"{option.lands:.0%} ({option.low:.0%} to {option.high:.0%})",
        money(option.dollars),
        money(option.per_landed),
        began,
    ]
