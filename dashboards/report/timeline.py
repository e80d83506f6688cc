"""The lines of a report over the time at work: agents, landed work, cost."""

from dataclasses import dataclass, field

from dashboards.report.blocks import Point
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.state.status import progress

STEPS = (
    *(f.WorkerStarted, f.AttemptCommitted, f.AttemptFailed, f.BatchTested, f.ModelCalled, f.PlanRevised, f.RunStarted),
    *(f.EngineStarted, f.EngineStopped, f.CancelRequested, f.RunEnded),
)
"""The facts that may change a line of the timeline."""


@dataclass
class Timeline:
    """Lines over the time at work."""

    agents: list[Point] = field(default_factory=list)
    landed: list[Point] = field(default_factory=list)
    planned: list[Point] = field(default_factory=list)
    cost: dict[str, list[Point]] = field(default_factory=dict)
    """Dollars so far, by role."""
    resumed: list[float] = field(default_factory=list)

    def take(self, fact: f.Fact, state: RunState) -> None:
        if not isinstance(fact, STEPS):
            return
        at = state.seconds(fact.at)
        if isinstance(fact, f.EngineStarted) and fact.epoch > 1:
            self.resumed.append(at)
        if isinstance(fact, f.ModelCalled):
            line = self.cost.setdefault(fact.role, [(0.0, 0.0)])
            line.append((at, line[-1][1] + (fact.dollars or 0.0)))
            return
        landed = progress(state)
        _step(self.agents, at, 0 if state.engine_since is None else state.working())
        _step(self.landed, at, landed.done)
        _step(self.planned, at, landed.total)


def _step(line: list[Point], at: float, value: float) -> None:
    if not line or line[-1][1] != value:
        line.append((at, float(value)))
