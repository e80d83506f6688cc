"""Builds failures, with evidence for the planner."""

from collections.abc import Mapping

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun, Failure, FailureKind, Report

EVIDENCE = 6_000  # characters of check output that go back to a planner
REPORTED: Mapping[str | None, FailureKind] = {
    "too_complex": "too_complex",
    "ambiguous": "ambiguous",
    "tool": "tool",
    "environment": "tool",
    "conflict": "conflict",
}
"""Failure kind for each `error_kind` of a worker's report. All of them count against the subtask's attempts."""
HOW_TO_REPORT = (
    "This is an internal error of fleet. It did not count as an attempt, and finished work is kept. Please report "
    "it with this traceback, the output of `fleet --version`, and a description of the repository and the plan."
)


def check_failure(failed: tuple[CheckRun, ...]) -> Failure:
    """Return the failure of an attempt whose checks failed."""
    names = ", ".join(check.criterion for check in failed)
    return Failure(kind="check", summary=f"does not pass: {names}", evidence=evidence(failed))


def vacuous(passing: tuple[CheckRun, ...], base: Sha) -> Failure:
    """Return the failure of checks that already pass before any work was done."""
    return Failure(
        kind="vacuous",
        summary="passes before any work was done: " + ", ".join(run.criterion for run in passing),
        evidence="\n".join(f"$ {run.command}\n(exit code 0 on the base {base[:12]})" for run in passing),
    )


def red_guard(failed: tuple[CheckRun, ...], base: Sha) -> Failure:
    """Return the failure of guards that fail before any work was done.

    A worker could not fix them or would be blamed.
    """
    names = ", ".join(check.criterion for check in failed)
    why = f"On the base {base[:12]}, before any work was done. Fix it first, or remove the guard."
    return Failure(
        kind="check",
        summary=f"a guard fails before any work was done: {names}",
        evidence=f"{evidence(failed)}\n\n{why}",
    )


def internal_failure(step: str, error: str, trace: str) -> Failure:
    """Return the failure of a step that raised an unexpected exception, with instructions for reporting it."""
    summary = f"internal error while fleet {step}: {error}"
    return Failure(kind="internal", summary=summary, evidence=f"{trace.rstrip()}\n\n{HOW_TO_REPORT}")


def evidence(failed: tuple[CheckRun, ...]) -> str:
    share = EVIDENCE // max(1, len(failed))
    return "\n\n".join(f"$ {check.command}\n({how(check)})\n{check.output[-share:]}" for check in failed)


def how(check: CheckRun) -> str:
    """Return how a failed check ended."""
    if check.flaky:
        return "failed, then passed in a second run: flaky"
    return f"stopped after {check.seconds:.0f} s" if check.timed_out else f"exit code {check.exit_code}"


def reported_failure(report: Report) -> Failure:
    """Return the failure that a worker reported."""
    kind = "ambiguous" if report.status == "blocked" else REPORTED.get(report.error_kind, "other")
    details = [report.error_message or "", *(f"needs: {need}" for need in report.needs)]
    advice = [f"recommends: {recommendation}" for recommendation in report.recommendations]
    return Failure(kind=kind, summary=report.summary, evidence="\n".join(filter(None, (*details, *advice))))
