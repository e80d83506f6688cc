"""Tries the set-up command and the gate, or another command, in the box on a commit: without a run, a plan or a model.

    trial = await try_out(config, environ, TrialOrder(repository), progress)

Everything is as in a run: the same worktree, box, set-up, included files and limits. Nothing is left in the repository,
and in the state directory only the logs of the last trial.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fleet.app.wiring import Wiring
from fleet.config.schema import Config, gate_of
from fleet.core.plans.plan import Criterion
from fleet.core.state.facts import CheckRun, Failure, SetupRun
from fleet.core.verdicts.judges import NO_RESULTS, is_analysis
from fleet.core.verdicts.summaries import starts_pytest
from fleet.core.views.init_view import TrialView, trial_view
from fleet.engine.verdicts.checks import NO_REPORT
from fleet.errors import FleetError
from fleet.ports.worktrees import EffectError
from fleet.runs.run_folder import make_state_dir
from worktrees.base.settings import WorktreeSettings
from worktrees.leases.trial_worktrees import open_trial_worktrees
from worktrees.sandbox.box import require_bubblewrap
from worktrees.store.store import home_of
from worktrees.target.target import Target, inspect

LOGS = "tried"  # the folder of the logs, beside the store
Progress = Callable[[Literal["set-up", "gate", "command"], str], None]
"""Called when a step begins, with its command."""


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """What to try, and where."""

    repository: Path
    base: str | None = None
    """A commit, branch or tag; None: HEAD."""
    command: str | None = None
    """Instead of the configured gate."""
    timeout_s: float | None = None
    """Instead of `checks.gate_timeout_s`."""


async def try_out(
    config: Config, environ: Mapping[str, str], order: TrialOrder, progress: Progress | None = None
) -> TrialView:
    """Set a worktree of the commit up, and run the gate or the command in it.

    What fails is part of the result. Raises `FleetError` if there is no repository, no box, or no place for the state.
    """
    begun = time.monotonic()
    if shutil.which("git") is None:
        raise FleetError("git is not installed, or not in PATH", hint="install it: apt-get install git")
    target = await inspect(order.repository, order.base)
    settings = Wiring(config, environ).worktrees
    require_bubblewrap(settings)
    make_state_dir(settings.state_dir)
    logs = home_of(settings.state_dir, target)
    shutil.rmtree(logs / LOGS, ignore_errors=True)
    on_setup = (lambda command: progress("set-up", command)) if progress is not None else None
    settings = replace(settings, check_logs=logs / LOGS, on_setup=on_setup)
    setup, check, failure = await _try_in(target, settings, _criterion(config, order), order, progress)
    seconds = round(time.monotonic() - begun, 3)
    return trial_view(
        repository=str(target.root),
        base=target.base,
        base_name=target.base_name,
        seconds=seconds,
        setup=setup,
        check=check,
        failure=failure,
        logs=str(logs),
        notes=target.warnings,
    )


def _criterion(config: Config, order: TrialOrder) -> Criterion | None:
    gate = gate_of(config.checks)
    if order.command is not None:
        gate = Criterion(criterion="the command", run=order.command, timeout_s=gate.timeout_s, fails_before=False)
    if not (gate.run or "").strip():
        return None
    return gate if order.timeout_s is None else gate.model_copy(update={"timeout_s": order.timeout_s})


async def _try_in(
    target: Target,
    settings: WorktreeSettings,
    criterion: Criterion | None,
    order: TrialOrder,
    progress: Progress | None,
) -> tuple[SetupRun | None, CheckRun | None, Failure | None]:
    check, failure = None, None
    async with open_trial_worktrees(target, settings) as worktrees:
        try:
            async with worktrees.lease(target.base) as lease:
                if criterion is not None:
                    if progress is not None:
                        progress("gate" if order.command is None else "command", criterion.run or "")
                    check = await lease.check(criterion)
        except EffectError as error:
            failure = error.failure
        setups = worktrees.finished_setups()
    if check is not None and criterion is not None:
        check = _believed(check, criterion, settings)
    return (setups[-1] if setups else None), check, failure


def _believed(check: CheckRun, criterion: Criterion, settings: WorktreeSettings) -> CheckRun:
    """As in a run, a success without a report counts as a failure if the runner owes one; findings are all old."""
    reported = check.ran_tests is not None
    if is_analysis(criterion):
        if reported:
            return check.model_copy(update={"passed": not check.timed_out})
        return _refused(check, NO_RESULTS.format(tests=criterion.tests))
    owes = criterion.tests is not None or starts_pytest(check.command)
    if not (settings.expected_tests and check.passed and not reported and owes):
        return check
    return _refused(check, NO_RESULTS.format(tests=criterion.tests) if criterion.tests else NO_REPORT)


def _refused(check: CheckRun, why: str) -> CheckRun:
    return check.model_copy(update={"passed": False, "output": f"{check.output}\n{why}".strip(), "causes": (why,)})
