"""The faults that a rehearsal mixes in, and which attempt or check meets which. A seed decides, so it can be repeated.

The names are those of the table in docs/reliability.md. A fault is met by an early attempt only, so every run ends.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, TypeVar

from fleet.core.base.ids import SubtaskId
from fleet.core.state.facts import Rehearsal

WorkFault = Literal["dies", "hangs", "claims", "drifts", "corrupts", "stale", "vanishes"]
CheckFault = Literal["hangs", "flaky"]
WORK_FAULTS: dict[WorkFault, str] = {
    "dies": "the agent was killed in the middle of its work",
    "hangs": "the agent hung until its time was over",
    "claims": "the agent reported done without having done anything",
    "drifts": "the agent also changed a file that is not its own",
    "corrupts": "the agent got a file wrong",
    "stale": "the agent worked on the tree that the run started from",
    "vanishes": "the worktree was deleted under the agent",
}
CHECK_FAULTS: dict[CheckFault, str] = {
    "hangs": "the gate hung until its time was over",
    "flaky": "the gate failed for no reason",
}
KILLED = "the engine was killed, and a lock was left in its store"
LATEST = 4  # the last attempt at a subtask that meets a fault
A_KILL = 5  # faults that come with one kill of the engine
Name = TypeVar("Name", bound=str)


def work_fault(rehearsal: Rehearsal, subtask: SubtaskId, attempt: int) -> WorkFault | None:
    """What goes wrong with an attempt."""
    if attempt > LATEST:
        return None
    return _drawn(rehearsal, f"work/{subtask}/{attempt}", tuple(WORK_FAULTS))


def check_fault(rehearsal: Rehearsal, tree: str) -> CheckFault | None:
    """What goes wrong with the first check of a tree."""
    return _drawn(rehearsal, f"check/{tree}", tuple(CHECK_FAULTS))


def kills(rehearsal: Rehearsal, subtasks: int) -> tuple[int, ...]:
    """After how many landed commits the engine is killed, each time."""
    number = round(rehearsal.faults * subtasks / A_KILL) or (1 if rehearsal.faults else 0)
    return tuple(subtasks * part // (number + 1) for part in range(1, number + 1))


def _drawn(rehearsal: Rehearsal, key: str, names: Sequence[Name]) -> Name | None:
    digest = sha256(f"{rehearsal.seed}/{key}".encode()).digest()
    if int.from_bytes(digest[:4]) / 2**32 >= rehearsal.faults:
        return None
    return names[digest[4] % len(names)]
