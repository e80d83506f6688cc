"""The project's gate as a criterion."""

from fleet.config.schema import Checks
from fleet.core.plans.plan import Criterion

GATE = "gate"
"""What `[checks.tests]` calls it."""


def gate_of(checks: Checks) -> Criterion:
    """Its command may be empty: then there is none."""
    return Criterion(
        criterion="the project's gate",
        run=checks.gate,
        timeout_s=checks.gate_timeout_s,
        fails_before=False,
        tests=checks.tests.get(GATE),
    )
