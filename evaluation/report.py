"""An evaluation as lines of text."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from evaluation.compare import LEAST, MEASURES, Comparison
from evaluation.field import Field, Result


def field_lines(
    field: Field, results: Sequence[Result], compared: Sequence[Comparison], *, simulated: bool
) -> Iterator[str]:
    """A table of the measures: of one version, or of two with their difference."""
    if compared:
        yield from _comparison(field, compared)
    else:
        yield from _alone(results)
    yield ""
    for version in field.versions:
        rungs: Counter[str] = Counter()
        for each in results:
            if each.version == version.digest:
                rungs.update(each.score.rungs)
        used = ", ".join(f"{name} {number}" for name, number in rungs.most_common())
        yield f"attempts of {version.name} ({version.digest}): {used or 'none'}"
    spent = sum(each.score.dollars for each in results)
    if simulated:
        yield f"used a simulated model, free of charge; real models would have cost ${spent:.4f}"
    else:
        yield f"spent ${spent:.4f} of at most ${field.dollars:.2f}"


def _alone(results: Sequence[Result]) -> Iterator[str]:
    yield f"{'measure':<34}{'mean':>10}   of {len(results)} runs"
    for measure in MEASURES:
        values = [value for each in results if (value := measure.of(each.score)) is not None]
        if values:
            yield f"{measure.name:<34}{fmean(values):>10.4f}"


def _comparison(field: Field, compared: Sequence[Comparison]) -> Iterator[str]:
    first, second = field.versions
    yield f"first: {first.name} ({first.digest}); second: {second.name} ({second.digest})"
    yield f"{'measure':<34}{'first':>10}{'second':>10}{'difference':>12}  {'95 % interval':<22}the second is"
    for each in compared:
        interval = f"{each.low:+.4f} to {each.high:+.4f}"
        figures = f"{each.first:>10.4f}{each.second:>10.4f}{each.difference:>+12.4f}"
        yield f"{each.measure:<34}{figures}  {interval:<22}{each.verdict}"
    pairs, repositories = max(each.pairs for each in compared), max(each.repositories for each in compared)
    yield f"{pairs} pairs of runs in {repositories} repositories; conclusions require at least {LEAST} repositories"
