"""A trial's verdict, and what to do about it."""

import pytest

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun, Failure, SetupRun
from fleet.features.recipes.init_view import TrialView, trial_view

GREEN = CheckRun(criterion="gate", command="make test", passed=True)
RED = CheckRun(criterion="gate", command="make test", passed=False, causes=("FAILED test_a",))
MISSING = CheckRun(criterion="gate", command="make test", passed=False, causes=("sh: pytest: not found",))
FAILURE = Failure(kind="infrastructure", summary="no space left on device", evidence="")


def tried(setup: CheckRun | None, check: CheckRun | None, failure: Failure | None = None) -> TrialView:
    run = SetupRun(commit="c" * 40, check=setup) if setup is not None else None
    return trial_view(
        repository="/r",
        base=Sha("b" * 40),
        base_name="main",
        seconds=1.0,
        setup=run,
        check=check,
        failure=failure,
        logs="/logs",
        notes=(),
    )


@pytest.mark.parametrize(
    ("setup", "check", "failure", "verdict"),
    [
        (None, GREEN, None, "green"),
        (GREEN, RED, None, "red"),
        (RED, None, None, "setup failed"),
        (RED, None, FAILURE, "setup failed"),
        (GREEN, None, FAILURE, "not possible"),
        (GREEN, None, None, "no gate"),
    ],
)
def test_the_first_thing_that_failed_decides(
    setup: CheckRun | None, check: CheckRun | None, failure: Failure | None, verdict: str
) -> None:
    assert tried(setup, check, failure).verdict == verdict


def test_what_failed_is_shown_with_its_causes_and_advice() -> None:
    view = tried(GREEN, MISSING)
    assert (view.failed, view.causes) == (MISSING, ("sh: pytest: not found",))
    assert "pytest" in view.advice[0]
    assert tried(GREEN, GREEN).failed is None
    assert tried(None, None, FAILURE).causes
