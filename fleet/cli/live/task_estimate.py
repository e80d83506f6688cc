"""What a commit done again is likely to cost: as finished subtasks of earlier runs did, or else by an assumption."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agents.conversation.settings import AgentSettings
from agents.models.cost.prices import dollars
from fleet.core.base.usage import Usage
from fleet.core.state.state import RunState
from fleet.core.state.subtask_state import SubtaskState
from fleet.runs.run_folder import readable_runs

ENOUGH = 5  # finished subtasks of earlier runs
CALLS = 25
CALL = Usage(cache_read=25_000, cache_write=2_500, output=700)
"""The usual length of a call of a worker in the middle of its work."""


@dataclass(frozen=True, slots=True)
class TaskEstimate:
    """What one subtask is likely to cost."""

    model: str | None
    """Null for a program, whose price is not known."""
    dollars: float | None
    because: str


def task_estimate(state_dir: Path, settings: AgentSettings, worker: str) -> TaskEstimate:
    """The estimate for a worker."""
    kind = settings.workers[worker]
    if kind.kind == "command":
        return TaskEstimate(None, None, "what a program costs is not known")
    model = kind.models[0] if kind.models else settings.worker_model
    costs = [cost for _, state in readable_runs(state_dir) if not state.simulated for cost in _costs(state, model)]
    if len(costs) >= ENOUGH:
        return TaskEstimate(model, median(costs), f"as {len(costs)} subtasks of earlier runs did")
    price = dollars(model, CALL, settings.prices)
    assumed = f"assumed: {CALLS} calls of {CALL.prompt:,} tokens, most of them cached, and {CALL.output} of answer"
    return TaskEstimate(model, None if price is None else price * CALLS, assumed)


def _costs(state: RunState, model: str) -> Iterator[float]:
    for subtask in state.subtasks.values():
        if _is_of(subtask, model) and (cost := subtask.spend.dollars):
            yield cost


def _is_of(subtask: SubtaskState, model: str) -> bool:
    return subtask.has_own_commit and subtask.last is not None and subtask.last.model == model
