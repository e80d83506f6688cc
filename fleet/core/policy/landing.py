"""Order of landing: chooses the prefixes of the merge queue to test in parallel. Independent of git and processes.

This is group testing with nested groups. The position of the first faulty entry in the queue is random. The next
prefixes are chosen so that their results divide the possible positions into equally likely parts. One test in each of c
slots then yields log2(c + 1) bits, the maximum for nested tests. If nearly everything fails, that means prefixes of one
entry. If every test passes, it means the full queue.

While tests are quick, the tree of every commit is tested, in one batch at a time (docs/decisions/0025).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile
from math import expm1, log, log1p

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts.facts import AttemptFailed, CheckRun, Failure, Member
from fleet.core.facts.failures import evidence
from fleet.core.state.state import Landing, RunState
from fleet.core.state.status import landing_order
from fleet.core.state.subtasks import Attempt, Mark, SubtaskState

ASSUMED, WEIGHT = 0.05, 10.0  # the failure rate before anything is known, and how many outcomes it counts for
RARE, COMMON = 0.001, 0.9
START_S = 0.05  # to test one tree, without its checks
FULL = 2  # candidates for each worker, if that is more than a batch holds
PARTS = 6  # while every tree is tested, a batch takes at most this fraction of the time allowed for that


def next_batches(state: RunState) -> tuple[tuple[Member, ...], ...]:
    """The candidates of each batch to form now."""
    landing, policy = state.landing, state.policy
    if not landing.queue or len(landing.open_batches) >= policy.slots:
        return ()
    most = min(policy.batch, in_turn(state))
    quick = not policy.every_commit and every_tree(state, landing.queue[:most])
    if quick and landing.prefixes:  # one at a time, as every tree is tested
        return ()
    if quick:
        most = soon_count(state, landing.queue[:most])
    sizes = next_sizes(landing, slots=policy.slots, most=most, every_commit=policy.every_commit, together=quick)
    members = [member_of(state, id_) for id_ in landing.queue[: max(sizes, default=0)]]
    return tuple(tuple(members[:size]) for size in sizes)


def in_turn(state: RunState) -> int:
    """Return the number of queue entries that may land now. In plan order, each entry waits for all earlier ones."""
    queue = state.landing.queue
    if not state.policy.in_order:
        return len(queue)
    ahead = (id_ for id_ in landing_order(state) if not state.subtasks[id_].closed)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(queue, ahead, strict=False)))


def is_full(state: RunState) -> bool:
    """Return whether more work waits to land than can be tested at a time. New attempts would start on an old tip.

    Always false if subtasks land in plan order, because the queue may wait for subtasks that have not started.
    """
    policy, subtasks = state.policy, state.subtasks
    done = subtasks.marked(Mark.UNDERWAY) & ~(subtasks.marked(Mark.RUNNING) | subtasks.marked(Mark.PLANNING))
    return not policy.in_order and done.bit_count() >= max(policy.batch, FULL * policy.workers)


def waits_in_vain(state: RunState) -> bool:
    """Whether all that is in the queue waits for something that is not."""
    return bool(state.landing.queue) and not state.landing.open_batches and in_turn(state) == 0


def every_tree(state: RunState, ids: Sequence[SubtaskId]) -> bool:
    """Whether each of these commits has its own tree tested before it lands."""
    policy = state.policy
    if policy.every_commit:
        return True
    return sum(_seconds(state, ids)) <= policy.every_commit_within_s * policy.slots


def soon_count(state: RunState, ids: Sequence[SubtaskId]) -> int:
    """Return how many of these entries to test tree by tree, so that one lands every few seconds."""
    limit = state.policy.every_commit_within_s * state.policy.slots / PARTS
    fitting = sum(total <= limit for total in accumulate(_seconds(state, ids)))
    return max(fitting, min(state.policy.slots, len(ids)))


def _seconds(state: RunState, ids: Sequence[SubtaskId]) -> Iterator[float]:
    """Return the expected duration of testing each entry: the gate and its own checks."""
    gate, subtasks = START_S + sum(state.gate.values()), state.subtasks
    for id_ in ids:
        seconds = gate
        for check in subtasks[id_].attempts[-1].checks:
            seconds += check.seconds
        yield seconds


def member_of(state: RunState, id_: SubtaskId) -> Member:
    attempt = state.subtasks[id_].attempts[-1]
    return Member(subtask=id_, attempt=attempt.number, commit=attempt.commit or Sha(""))


def next_sizes(
    landing: Landing, *, slots: int, most: int, every_commit: bool = False, together: bool = False
) -> tuple[int, ...]:
    """Return the sizes of the next batches. `together`: every tree is tested, and there is time for all."""
    free, suspects, open_ = slots - len(landing.open_batches), len(landing.suspects), landing.prefixes
    if free <= 0 or suspects == 1 or (open_ and (suspects or every_commit)):
        return ()
    reach, rate = min(len(landing.queue), most), failure_rate(landing.outcomes)
    if suspects:  # these need not be adjacent: some entries could not be merged
        return tuple(landing.queue.index(landing.suspects[size - 1]) + 1 for size in cuts(suspects, free, rate))
    if together or every_commit:
        size = reach if together else min(free, reach)
        return (size,) if size and not open_ else ()
    tested = max((len(batch.members) for batch in open_), default=0)
    return tuple(tested + size for size in prefixes(reach - tested, free, slots, rate))


def failure_rate(outcomes: Sequence[bool]) -> float:
    """The estimated share of candidates that turn a tree red."""
    bad = len(outcomes) - sum(outcomes)
    rate = (bad + ASSUMED * WEIGHT) / (len(outcomes) + WEIGHT)
    return min(COMMON, max(RARE, rate))


def prefixes(reach: int, free: int, slots: int, rate: float) -> tuple[int, ...]:
    """Prefixes of a queue without suspects, as long as each one's result is still informative."""
    if reach <= 0:
        return ()
    sizes = [max(1, round(log(1 - number / (slots + 1)) / log1p(-rate))) for number in range(1, free + 1)]
    if sizes[-1] < reach:
        return tuple(sorted(set(sizes)))
    return (*cuts(reach, free - 1, rate), reach)


def cuts(length: int, slots: int, rate: float) -> tuple[int, ...]:
    """Return where to divide suspects into parts that are equally likely to contain the first faulty entry."""
    if slots >= length - 1:
        return tuple(range(1, length))
    stays = log1p(-rate)
    within = -expm1(length * stays)
    places = (log1p(-within * number / (slots + 1)) / stays for number in range(1, slots + 1))
    return tuple(sorted({min(length - 1, max(1, round(place))) for place in places}))


# ---- conflict attribution --------------------------------------------------------------------------------------------
# Candidates whose merged tree is red: which landed work they may contradict.
#
# Such a candidate passed its own checks on its own base, so it contradicts something that landed since. The evidence
# for the next worker names it. Names come from the plan and texts from workers, so they are evidence and nothing
# more.


NAMED = 5  # subtasks or paths named, at most
_WORD = re.compile(r"[\w./-]+")


def send_back(state: RunState, id_: SubtaskId, failed: tuple[CheckRun, ...], at: float) -> AttemptFailed:
    """The failure of an attempt whose change made a tree red, as a fact."""
    attempt, failure = state.subtasks[id_].attempts[-1], integration_failure(state, id_, failed)
    checks = (*attempt.checks, *failed)
    return AttemptFailed(at=at, subtask=id_, number=attempt.number, failure=failure, checks=checks)


def integration_failure(state: RunState, id_: SubtaskId, failed: tuple[CheckRun, ...]) -> Failure:
    """Return the failure of a candidate whose merged tree fails."""
    attempt = state.subtasks[id_].attempts[-1]
    since = list(landed_since(state, attempt))
    near = [other for other in since if _is_near(other, attempt, failed)]
    names = ", ".join(check.criterion for check in failed)
    if not since:
        summary = f"passes its own checks, but breaks: {names}"
        return Failure(kind="integration", summary=summary, evidence=evidence(failed))
    summary = f"fails when merged with work that landed since: {names}"
    what = "changing files named in the failure" if near else "none of which changes a file named in the failure"
    intents = "\n".join(intent(state, other.id) for other in (near or since)[-NAMED:])
    return Failure(
        kind="integration",
        summary=f"{summary}. It may contradict {', '.join(other.id for other in near[-NAMED:])}" if near else summary,
        evidence=f"{evidence(failed)}\n\nIts own checks passed on its own base. Landed since, {what}:\n{intents}",
    )


def landed_since(state: RunState, attempt: Attempt) -> Iterator[SubtaskState]:
    """The subtasks whose commits landed after an attempt started, oldest first."""
    since = takewhile(lambda batch: batch.at > attempt.started_at, reversed(state.landing.tested))
    landed = [state.subtasks[id_] for batch in since for id_ in reversed(batch.landed)]
    return (subtask for subtask in reversed(landed) if subtask.landed is not None)


def intent(state: RunState, id_: SubtaskId) -> str:
    """A landed subtask in a line: its title, report and paths."""
    spec, last = state.spec(id_), state.subtasks[id_].last
    summary = last.report.summary if last is not None and last.report is not None else ""
    paths = ", ".join(last.paths[:NAMED]) if last is not None else ""
    return f"- {id_}: {spec.title}. {summary}".rstrip() + (f" (changed {paths})" if paths else "")


def _is_near(other: SubtaskState, attempt: Attempt, failed: tuple[CheckRun, ...]) -> bool:
    """Whether a subtask changed a file that the failing checks name or that the attempt changed as well."""
    words = {word.strip(".") for check in failed for word in _WORD.findall(f"{check.command}\n{check.output}")}
    paths = other.attempts[-1].paths
    return any(path in attempt.paths or not words.isdisjoint(_names(path)) for path in paths)


def _names(path: str) -> tuple[str, ...]:
    """Return the names of a file in test output: its path, its name and its module."""
    stem = path.rsplit(".", 1)[0]
    return (path, path.rsplit("/", 1)[-1], stem, stem.replace("/", "."), f"./{path}", f"/repo/{path}")
