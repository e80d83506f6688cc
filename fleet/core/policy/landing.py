"""Order of landing: which prefixes of the queue are tested side by side. Knows neither git nor processes.

It is group testing with nested groups. Where the first guilty one stands in the queue is a matter of chance; the next
prefixes are chosen so that their results cut what may be true into equally likely parts. One test in each of c slots
then yields log2(c + 1) bits, the most that nested tests can. When nearly everything fails that means single ones, when
nothing fails the whole queue.

Where tests are quick, none is saved at the price of an untested commit: there is one probe at a time, and the tree of
every commit in it is tested (docs/decisions/0025).
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import expm1, log, log1p

from fleet.core.facts import Member
from fleet.core.ids import SubtaskId
from fleet.core.state import Landing, RunState

ASSUMED, WEIGHT = 0.05, 10.0  # the failure rate before anything is known, and how many outcomes it counts for
RARE, COMMON = 0.001, 0.9
START_S = 0.05  # of a test of one tree, besides the checks
PARTS = 6  # while every tree is tested, something lands in one in so many of the time there is for that


def next_probes(state: RunState) -> tuple[tuple[Member, ...], ...]:
    """The candidates of each probe to open now."""
    landing, policy = state.landing, state.policy
    most = policy.batch
    quick = not policy.every_commit and every_tree(state, landing.queue[:most])
    if quick:
        most = soon(state, landing.queue[:most])
    sizes = next_sizes(landing, slots=policy.slots, most=most, every_commit=policy.every_commit, together=quick)
    members = [member_of(state, id_) for id_ in landing.queue[: max(sizes, default=0)]]
    return tuple(tuple(members[:size]) for size in sizes)


def every_tree(state: RunState, ids: Sequence[SubtaskId]) -> bool:
    """Whether each of these commits has its own tree tested before the branch moves over it."""
    policy = state.policy
    if policy.every_commit:
        return True
    return sum(_seconds(state, ids)) <= policy.every_commit_within_s * policy.slots


def soon(state: RunState, ids: Sequence[SubtaskId]) -> int:
    """How many of these to test tree by tree at one time: as few as keeps something landing every few seconds."""
    limit = state.policy.every_commit_within_s * state.policy.slots / PARTS
    fit = sum(total <= limit for total in accumulate(_seconds(state, ids)))
    return max(fit, min(state.policy.slots, len(ids)))


def _seconds(state: RunState, ids: Sequence[SubtaskId]) -> Iterator[float]:
    """How long the tree of each is likely to take: the gate, and its own checks."""
    gate = START_S + sum(state.gate.values())
    return (gate + sum(check.seconds for check in state.subtasks[id_].attempts[-1].checks) for id_ in ids)


def member_of(state: RunState, id_: SubtaskId) -> Member:
    attempt = state.subtasks[id_].attempts[-1]
    return Member(subtask=id_, attempt=attempt.number, commit=attempt.commit or "")


def next_sizes(
    landing: Landing, *, slots: int, most: int, every_commit: bool = False, together: bool = False
) -> tuple[int, ...]:
    """How many of the queue each new probe holds. `together`: every tree is tested, and there is time for all."""
    free, suspects, open_ = slots - len(landing.probes), len(landing.suspects), landing.prefixes
    if free <= 0 or suspects == 1 or (open_ and (suspects or every_commit)):
        return ()
    reach, rate = min(len(landing.queue), most), failure_rate(landing.outcomes)
    if suspects:  # not all of the front of the queue are: some could not be merged
        return tuple(landing.queue.index(landing.suspects[size - 1]) + 1 for size in cuts(suspects, free, rate))
    if together or every_commit:
        size = reach if together else min(free, reach)
        return (size,) if size and not open_ else ()
    known = max((len(probe.members) for probe in open_), default=0)
    return tuple(known + size for size in prefixes(reach - known, free, slots, rate))


def failure_rate(outcomes: Sequence[bool]) -> float:
    """What part of the candidates turns a tree red, as far as one can tell."""
    bad = len(outcomes) - sum(outcomes)
    rate = (bad + ASSUMED * WEIGHT) / (len(outcomes) + WEIGHT)
    return min(COMMON, max(RARE, rate))


def prefixes(reach: int, free: int, slots: int, rate: float) -> tuple[int, ...]:
    """Prefixes of a queue of which nothing is known: as long as each still tells something."""
    if reach <= 0:
        return ()
    sizes = [max(1, round(log(1 - number / (slots + 1)) / log1p(-rate))) for number in range(1, free + 1)]
    if sizes[-1] < reach:
        return tuple(sorted(set(sizes)))
    return (*cuts(reach, free - 1, rate), reach)


def cuts(length: int, slots: int, rate: float) -> tuple[int, ...]:
    """Where to cut a front of the queue into parts that are equally likely to hold its first guilty one."""
    if slots >= length - 1:
        return tuple(range(1, length))
    stays = log1p(-rate)
    within = -expm1(length * stays)
    places = (log1p(-within * number / (slots + 1)) / stays for number in range(1, slots + 1))
    return tuple(sorted({min(length - 1, max(1, round(place))) for place in places}))
