"""From checks and reports to failures with evidence."""

import pytest

from fleet.core.base.ids import Sha
from fleet.core.facts import failures
from fleet.core.facts.facts import CheckRun, FailureKind, Report

RED = CheckRun(criterion="tests pass", command="pytest", passed=False, exit_code=1, output="2 failed")
SLOW = CheckRun(criterion="is quick", command="bench", passed=False, timed_out=True, seconds=60.4)
FLAKY = CheckRun(criterion="is steady", command="soak", passed=False, flaky=True)


def test_red_checks_become_a_failure_that_names_them_and_shows_their_output() -> None:
    failure = failures.check_failure((RED, SLOW))
    assert (failure.kind, failure.summary) == ("check", "does not pass: tests pass, is quick")
    assert failure.evidence == "$ pytest\n(exit code 1)\n2 failed\n\n$ bench\n(stopped after 60 s)\n"


def test_a_flaky_check_says_so() -> None:
    assert "flaky" in failures.evidence((FLAKY,))


def test_long_output_is_cut_at_its_beginning_and_shared_among_the_checks() -> None:
    long = RED.model_copy(update={"output": "x" * failures.EVIDENCE + "the end"})
    both = failures.evidence((long, long))
    assert both.count("the end") == 2
    assert len(both) < failures.EVIDENCE + 100


def test_checks_that_pass_before_any_work_are_vacuous() -> None:
    failure = failures.vacuous((RED.model_copy(update={"passed": True}),), Sha("b" * 40))
    assert failure.kind == "vacuous"
    assert failure.evidence == f"$ pytest\n(exit code 0 on the base {'b' * 12})"


def test_a_guard_that_is_red_on_the_base_says_that_nothing_was_done_yet() -> None:
    failure = failures.red_guard((RED,), Sha("b" * 40))
    assert failure.kind == "check"
    assert "before any work was done" in failure.summary
    assert f"On the base {'b' * 12}" in failure.evidence


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        ("blocked", "tool", "ambiguous"),
        ("failed", "too_complex", "too_complex"),
        ("failed", "environment", "tool"),
        ("failed", "transient", "other"),  # a worker's claim never makes a failure free of charge
        ("failed", None, "other"),
    ],
)
def test_a_report_of_a_worker_is_a_failure_of_a_kind(status: str, error: str | None, kind: FailureKind) -> None:
    report = Report.model_validate({"status": status, "summary": "could not", "error_kind": error})
    assert failures.reported_failure(report).kind == kind


def test_what_a_worker_needs_and_recommends_is_evidence() -> None:
    report = Report(status="failed", summary="s", error_message="no key", needs=("a key",), recommendations=("ask",))
    assert failures.reported_failure(report).evidence == "no key\nneeds: a key\nrecommends: ask"
