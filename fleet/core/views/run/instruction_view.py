"""What people told those who work on a subtask, and which attempts have read it, or will."""

from dataclasses import dataclass

from fleet.core.base.ids import SubtaskId
from fleet.core.state.state import RunState
from fleet.core.state.status import phase
from fleet.core.state.subtask_state import Instruction, SubtaskState


@dataclass(frozen=True, slots=True)
class InstructionView:
    """An instruction of a person for the workers of a subtask."""

    text: str
    by: str
    at: float
    """When it was given, in seconds since 1970."""
    interrupt: bool
    """Whether it stopped the command that ran."""
    read_by: tuple[int, ...]
    """The numbers of the attempts that have read it."""


def instruction_views(subtask: SubtaskState) -> tuple[InstructionView, ...]:
    return tuple(_view(subtask, index, each) for index, each in enumerate(subtask.instructions))


def _view(subtask: SubtaskState, index: int, given: Instruction) -> InstructionView:
    readers = tuple(attempt.number for attempt in subtask.attempts if len(attempt.instructions) > index)
    return InstructionView(given.text, given.by, given.at, given.interrupt, readers)


def when_read(state: RunState, id_: SubtaskId, *, interrupt: bool = False) -> str:
    """Which attempt will read an instruction that is given now, and when; for a person."""
    subtask = state.subtasks[id_]
    attempt, worker = subtask.current, state.spec(id_).worker
    later = f"attempt {len(subtask.attempts) + 1} reads it when it starts"
    if attempt is None and subtask.failure is not None:
        return f"{later}; `fleet retry {id_}` starts one now, where nothing else does"
    if attempt is None:
        return later
    if phase(attempt) in {"checking", "landing"}:
        return f"attempt {attempt.number} has finished and is tested; {later}, if there is one"
    if not attempt.working:
        return f"attempt {attempt.number} reads it when it starts"
    if worker in state.policy.programs:
        return f"attempt {attempt.number} is a program, which reads nothing while it runs; {later}, if there is one"
    if interrupt:
        return f"attempt {attempt.number} is interrupted and reads it at once"
    if worker in state.policy.by_turns:
        return f"attempt {attempt.number} reads it once its turn has ended"
    return f"attempt {attempt.number} reads it after the tools that it runs now"
