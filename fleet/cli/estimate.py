"""What a plan or an epic will probably cost and take, by this repository's earlier runs. No model is called for it."""

from collections.abc import Sequence
from pathlib import Path

from agents.models.wire.client import is_simulated
from dashboards.text.forecast_text import HEAD, forecast_lines
from dashboards.text.safe import safe
from fleet.app.evidence import PastRun, evidence_of, past_runs
from fleet.app.wiring import Wiring
from fleet.cli.common import run_async
from fleet.core.plans.flat import flat_plan
from fleet.core.plans.plan import Plan
from fleet.core.policy.forecast import Basis, forecast
from fleet.core.state.facts import Forecast
from fleet.core.views.planning.estimate_view import EarlierRuns, EstimateView, earlier_runs, estimate_view
from fleet.errors import FleetError


def estimate(plan: Plan | None, wiring: Wiring, repository: Path) -> EstimateView:
    """Of a plan, or without one of an epic, which is expected to be as earlier ones."""
    runs = _past_runs(wiring, repository)
    if plan is None:
        return estimate_view(None, _earlier(runs), wiring.config.run.budget_dollars)
    return estimate_view(_forecast(plan, wiring, runs), None, wiring.config.run.budget_dollars)


def cost_lines(plan: Plan, wiring: Wiring, repository: Path) -> list[str]:
    """The forecast of a plan. Where nothing can be said, the plan is shown all the same."""
    try:
        return forecast_lines(_forecast(plan, wiring, _past_runs(wiring, repository)))
    except FleetError as error:
        return [f"{HEAD}unknown ({safe(str(error), limit=200)})"]


def _past_runs(wiring: Wiring, repository: Path) -> list[PastRun]:
    config = wiring.config
    simulated = run_async(lambda: is_simulated(config.models.base_url))
    return past_runs(Path(config.state.dir), repository, simulated=simulated)


def _forecast(plan: Plan, wiring: Wiring, runs: Sequence[PastRun]) -> Forecast:
    """Of a run that starts with the plan: its planner is called for failures only."""
    seen, assumed = evidence_of(runs), wiring.assumed
    gate_s = next((run.gate_s for run in runs if run.gate_s is not None), None)
    if not wiring.config.checks.gate.strip():
        gate_s = 0.0
    basis = Basis(
        policy=wiring.policy,
        assumed=assumed,
        tallies=seen.tallies,
        calls=seen.calls,
        gate_s=gate_s,
        has_planner=wiring.has_models,
        seconds=assumed.gate_s if gate_s is None else gate_s,  # it is run on the base first
    )
    return forecast(flat_plan(plan) if wiring.policy.flat else plan, basis)


def _earlier(runs: Sequence[PastRun]) -> EarlierRuns | None:
    """Of the runs that ended, landed something, and made their own plan."""
    alike = [run for run in runs if run.ended and run.commits and not run.given]
    return earlier_runs([(run.subtasks, run.dollars, run.minutes) for run in alike])
