"""Numbers as people read them."""

from fleet.core.usage import Spend


def duration(seconds: float) -> str:
    if seconds < 59.5:  # noqa: PLR2004 - what rounds to a minute is one
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def count(number: int) -> str:
    for limit, size, unit in ((999_950, 1_000_000, "M"), (10_000, 1000, "k")):
        if number >= limit:
            return f"{number / size:.1f}{unit}"
    return f"{number:,}"


def money(dollars: float | None) -> str:
    if dollars is None:
        return "unknown"
    return f"${dollars:.2f}" if dollars >= 1 or dollars == 0 else f"${dollars:.4f}"


def rate(recovered: int, closed: int) -> str:
    """Never a rate without its denominator."""
    return f"{recovered / closed:.0%} ({recovered} of {closed})" if closed else "no failures"


def untested(commits: int, tested: int) -> str:
    """What to add to a number of commits, where not each had its own tree tested (`landing.every_commit`)."""
    rest = commits - tested
    return f"; {count(rest)} of them tested only together with the next" if rest > 0 else ""


def tokens(spend: Spend) -> str:
    usage = spend.usage
    read = usage.input + usage.cache_read + usage.cache_write
    cached = f", {usage.cache_read / read:.0%} from cache" if read else ""
    return f"{count(read)} in{cached}, {count(usage.output)} out, {count(spend.calls)} calls"
