"""What `fleet doctor --live` finds at the models' service, for less than a cent and in bounded time."""

from collections.abc import AsyncIterator

from agents.models.wire.client import open_client
from agents.models.wire.exchange import Timeouts
from agents.probes.outcome import Outcome
from agents.probes.walk import Probes, Subject
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet
from fleet.core.plans.rungs import parse_rung
from fleet.core.views.machine.finding import Finding
from fleet.errors import FleetError

CALL = Timeouts(silence_s=30.0, call_s=60.0)
_LONGEST = 500  # characters of a service's message


async def live_findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Call the service, and say of each call what was tried, what came back and what to do."""
    try:
        fleet.wiring.require_models()
    except FleetError as error:
        yield Finding("live", ok=False, says="no call was made", fix=str(error))
        return
    wiring = fleet.wiring
    async with open_client(wiring.access, CALL) as client:
        probes = Probes(client, wiring.access, subjects(fleet), wiring.prices)
        async for outcome in probes.run():
            yield _finding(outcome)
    if settings := probes.missing.settings():
        yield Finding("settings", ok=False, says="this service lacks something", fix=f"in [models]: {settings}")
    spending = probes.spending
    says = f"at most ${spending.spent:.4f} of ${spending.most:.2f}, by the table of prices, for {spending.calls} calls"
    yield Finding("spent", ok=True, says=says, dollars=spending.spent)


def subjects(fleet: Fleet) -> list[Subject]:
    """Each model and effort that the configuration names, with who uses it."""
    planner, usual = fleet.config.planner, fleet.config.models.worker
    users: dict[tuple[str, str | None], list[str]] = {(planner.model, planner.effort): ["the planner"]}
    for name, worker in fleet.wiring.workers.items():
        if not worker.calls_models:
            continue
        for rung in worker.rungs or worker.models or (usual,):
            users.setdefault(parse_rung(rung) if worker.rungs else (rung, None), []).append(name)
    return [Subject(model, effort, ", ".join(names)) for (model, effort), names in users.items()]  # type: ignore[arg-type] # parsed


def _finding(outcome: Outcome) -> Finding:
    came = outcome.came
    prefix = "NOT TRIED: " if came.verdict == "not tried" else ""
    says = safe(f"{outcome.about}: {outcome.tried}: {prefix}{came.text}", limit=_LONGEST)
    fix = safe(came.fix, limit=_LONGEST)
    return Finding("live", ok=came.verdict != "fails", says=says, fix=fix, dollars=outcome.dollars)
