"""From what went wrong to a failure with evidence: what a planner needs to choose a better way."""

from collections.abc import Mapping

from fleet.core.facts import CheckRun, Failure, FailureKind, Report

EVIDENCE = 6_000  # characters of check output that go back to a planner
REPORTED: Mapping[str | None, FailureKind] = {
    "too_complex": "too_complex",
    "ambiguous": "ambiguous",
    "tool": "tool",
    "environment": "tool",
    "conflict": "conflict",
}
"""What a worker's own word for its failure means. Its word never makes a failure free of charge."""


def check_failure(failed: tuple[CheckRun, ...]) -> Failure:
    """What a planner needs to know about checks that did not pass."""
    names = ", ".join(check.criterion for check in failed)
    return Failure(kind="check", summary=f"does not pass: {names}", evidence=evidence(failed))


def vacuous(passing: tuple[CheckRun, ...], base: str) -> Failure:
    """Checks that pass before any work was done prove nothing: they go back to the planner."""
    return Failure(
        kind="vacuous",
        summary="passes before any work was done: " + ", ".join(run.criterion for run in passing),
        evidence="\n".join(f"$ {run.command}\n(exit code 0 on the base {base[:12]})" for run in passing),
    )


def red_guard(failed: tuple[CheckRun, ...], base: str) -> Failure:
    """Guards that fail before any work was done: whoever works next would be blamed for it, or could never be done."""
    names = ", ".join(check.criterion for check in failed)
    why = f"On the base {base[:12]}, before any work was done. Mend it first, or leave the guard out."
    return Failure(
        kind="check",
        summary=f"a guard fails before any work was done: {names}",
        evidence=f"{evidence(failed)}\n\n{why}",
    )


def evidence(failed: tuple[CheckRun, ...]) -> str:
    share = EVIDENCE // max(1, len(failed))
    return "\n\n".join(f"$ {check.command}\n({how(check)})\n{check.output[-share:]}" for check in failed)


def how(check: CheckRun) -> str:
    """How a check that is red ended."""
    if check.flaky:
        return "failed, then passed when it was run again: flaky"
    return f"stopped after {check.seconds:.0f} s" if check.timed_out else f"exit code {check.exit_code}"


def reported_failure(report: Report) -> Failure:
    """A worker's own account of why it could not."""
    kind = "ambiguous" if report.status == "blocked" else REPORTED.get(report.error_kind, "other")
    details = [report.error_message or "", *(f"needs: {need}" for need in report.needs)]
    advice = [f"recommends: {recommendation}" for recommendation in report.recommendations]
    return Failure(kind=kind, summary=report.summary, evidence="\n".join(filter(None, (*details, *advice))))
