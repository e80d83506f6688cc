"""What the doctor finds when it tries set-up and gate."""

from collections.abc import AsyncIterator
from pathlib import Path

from dashboards.text.formats import duration
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet
from fleet.core.facts.facts import CheckRun
from fleet.core.facts.failures import how
from fleet.features.recipes.trials import Progress, TrialOrder, try_out
from fleet.read.base_view import Finding

SHOWN = 3  # lines of a red gate


async def trial_findings(fleet: Fleet, repository: Path, progress: Progress | None) -> AsyncIterator[Finding]:
    """Set-up and gate as they were tried."""
    trial = await try_out(fleet.config, fleet.environ, TrialOrder(repository), progress)
    fix = "; ".join(trial.advice) or "fleet try shows more"
    if trial.setup is not None:
        yield _command("set-up", trial.setup.check, fix)
    if trial.check is not None:
        yield _command("gate", trial.check, fix)
    if trial.verdict == "not possible" and trial.failure is not None:
        yield Finding("gate", ok=False, says=safe(trial.failure.summary, limit=200), fix=fix)


def _command(what: str, check: CheckRun, fix: str) -> Finding:
    causes = "".join(f" | {safe(line, limit=160)}" for line in check.causes[:SHOWN])
    result = f"green in the box, {duration(check.seconds)}" if check.passed else f"{how(check)} in the box{causes}"
    says = f"{safe(check.command, limit=100)}: {result}"
    return Finding(what, ok=check.passed, says=says, fix="" if check.passed else safe(fix, limit=1000))
