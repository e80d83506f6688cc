"""What comes next, by what came before: the expectation of an amount from some earlier ones."""

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import fmean

ASSUMED, WEIGHT = 0.9, 2.0  # how much runs differ, in logarithms, before any is seen, and how many runs that counts for
BOUND = 1.2816  # standard deviations: nine of ten cases are below


def expect_next(amounts: Sequence[float]) -> tuple[float, float] | None:
    """The median and the 90th percentile of the next amount, taken as log-normal; None without any before."""
    logs = [log(amount) for amount in amounts if amount > 0]
    if not logs:
        return None
    middle = fmean(logs)
    squares = WEIGHT * ASSUMED**2 + sum((each - middle) ** 2 for each in logs)
    spread = sqrt(squares / (WEIGHT + len(logs) - 1) * (1 + 1 / len(logs)))
    return exp(middle), exp(middle + BOUND * spread)
