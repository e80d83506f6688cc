"""What a plan's workers will probably cost, as lines for a person."""

from pathlib import Path

from agents.models.wire.client import is_simulated
from dashboards.text.plans.plan_review import forecast_lines
from dashboards.text.safe import safe
from fleet.app.evidence import past_evidence
from fleet.app.wiring import Wiring
from fleet.cli.common import run_async
from fleet.core.plans.plan import Plan
from fleet.core.policy.forecast import forecast
from fleet.errors import FleetError


def cost_lines(plan: Plan, wiring: Wiring, repository: Path) -> list[str]:
    """By what runs with the configured service cost here. Where that can't be read, the plan is shown all the same."""
    config = wiring.config
    try:
        ladders = wiring.usual_ladders
        simulated = run_async(lambda: is_simulated(config.models.base_url))
        tallies = past_evidence(Path(config.state.dir), repository, simulated=simulated).tallies
    except FleetError as error:
        return [f"Workers: unknown ({safe(str(error), limit=200)})"]
    return forecast_lines(forecast(plan, ladders, tallies, attempts=config.limits.attempts))
