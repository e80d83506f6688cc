"""Order of landing: which candidates are tried together, and what a red batch means.

Knows nothing of git or processes. A red batch is tried again as its two halves, and so on until one candidate stands
alone: that one is guilty. With one guilty candidate in eight, seven runs of the gate find it and land the rest; however
many are guilty, n candidates need fewer than 2n runs.
"""

from fleet.core.facts import CheckRun, Ejected, Member
from fleet.core.failures import integration_failure
from fleet.core.state import RunState


def next_batch(state: RunState) -> tuple[Member, ...]:
    """The candidates to try next: the oldest first, as many as the last result allows."""
    landing = state.landing
    if landing.batch is not None:
        return ()
    members: list[Member] = []
    size = landing.halves[0] if landing.halves else state.policy.batch
    for id_ in landing.queue[:size]:
        attempt = state.subtasks[id_].current
        if attempt is not None and attempt.commit is not None:
            members.append(Member(subtask=id_, attempt=attempt.number, commit=attempt.commit))
    return tuple(members)


def verdict(members: tuple[Member, ...], failed: tuple[CheckRun, ...]) -> tuple[bool, tuple[Ejected, ...]]:
    """Whether the batch is red, and who is sent back for it."""
    if not failed:
        return False, ()
    if len(members) > 1:
        return True, ()
    guilty = members[0]
    return True, (Ejected(subtask=guilty.subtask, attempt=guilty.attempt, failure=integration_failure(failed)),)
