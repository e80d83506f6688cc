"""Why a branch did not get a result: what does not fit or is red, on which commit, and what to do next.

Subjects, names and output come from workers and repositories; they are made safe to print.
"""

from collections.abc import Sequence

from dashboards.text.formats import counted
from fleet.core.base.ids import RunId, Sha, result_branch
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import SubtaskState
from fleet.errors import FleetError
from fleet.runs.run_folder import RunFolder
from worktrees.base.fs import printable
from worktrees.git.commit_message import RUN, member_of, one_line, parse_trailers
from worktrees.store.replay import Replayed
from worktrees.store.store import Store

TAIL = 20  # lines of a red check that a person is shown
NAMED = 5  # subtasks that are named after the first


class NotTakenError(FleetError):
    """The branch is as it was: a commit of the run does not fit on it, or is red there."""

    exit_code = 1
    code = "not_taken"


class InterruptedTakingError(FleetError):
    """The branch is as it was, because a person stopped what went on."""

    exit_code = 130
    code = "interrupted"


async def conflict_error(
    store: Store, replayed: Replayed, *, run: RunId, branch: str, commits: Sequence[Sha], why_not: str
) -> NotTakenError:
    """A commit does not fit, and no worker may do it again."""
    stuck, failure = replayed.stuck or "", replayed.failure
    place = f"commit {commits.index(stuck) + 1} of {len(commits)}, {await _named(store, stuck)}"
    resolve = f"`fleet merge {run}` lets a worker resolve it" if why_not == "--no-resolve" else ""
    return NotTakenError(
        f"{branch} is as it was: {place}, {_on_branch(failure)}",
        hint=_joined(resolve or f"no worker resolves it: {why_not}", _by_hand(branch, run)),
    )


async def _named(store: Store, commit: Sha) -> str:
    message = (await store.repository.commit(commit)).message.decode("utf-8", "replace")
    member = member_of(commit, message, parse_trailers(message).get(RUN, ""))
    subject = printable(one_line(message.partition("\n")[0]))
    return f"{commit[:12]} {subject}" + (f" ({member.subtask})" if member is not None else "")


def relanding_error(state: RunState, folder: RunFolder, branch: str, run: RunId) -> FleetError:
    """A run that landed a result again has stopped before all of it had landed."""
    name = state.run
    if not state.ended:
        hint = f"the same command continues; `fleet status {name}` shows how far it is"
        return InterruptedTakingError(f"{branch} is as it was: interrupted", hint=hint)
    if state.base_failure is not None:
        return NotTakenError(f"nothing can be run on {branch} at {state.base[:12]}: {state.base_failure.summary}")
    if state.red_base and state.commits == 0 and not state.policy.allow_red_base:
        return NotTakenError(_with_check(f"{branch} itself is red at {state.base[:12]}", state.red_base[0], folder))
    stuck = [state.subtasks[id_] for id_ in state.plan.ids if _is_stuck(state.subtasks[id_])]
    if not stuck:
        hint = _joined(f"`fleet status {name}` has more", _by_hand(branch, run))
        return NotTakenError(f"{branch} is as it was: {state.ending_why}", hint=hint)
    return _stuck_error(state, stuck, folder, branch, run)


def _stuck_error(
    state: RunState, stuck: Sequence[SubtaskState], folder: RunFolder, branch: str, run: RunId
) -> NotTakenError:
    first, name = stuck[0], state.run
    ids = list(state.relanding.commits) if state.relanding is not None else []
    place = f"commit {ids.index(first.id) + 1} of {len(ids)}, " if first.id in ids else ""
    title = printable(state.spec(first.id).title)
    failures = [attempt for attempt in first.attempts if attempt.failure is not None]
    what = f"{branch} is as it was: {place}{title} ({first.id}), {_on_branch(failures[0].failure)}"
    if len(failures) > 1 and (last := failures[-1].failure) is not None:
        times = counted(len(failures) - 1, "time")
        what += f"; it was done again {times} and failed, last: {printable(last.summary.rstrip('.'))}"
    if len(stuck) > 1:
        more = ", ".join(each.id for each in stuck[1 : NAMED + 1])
        what += f"; neither did {more}{' and others' if len(stuck) > NAMED + 1 else ''} land"
    if state.ending == "budget":
        what += f"; {state.ending_why}"
    red = next((check for attempt in reversed(failures) for check in attempt.checks if not check.fine), None)
    again = f"`fleet retry {first.id} --run {name} -g GUIDANCE`, then the same command"
    if state.ending == "budget":
        again = "more with --budget USD"
    elif state.relanding is not None and not state.relanding.resolves:
        again = ""
    look = f"`fleet show {first.id} --run {name}` has every attempt"
    return NotTakenError(_with_check(what, red, folder), hint=_joined(look, again, _by_hand(branch, run)))


def _is_stuck(subtask: SubtaskState) -> bool:
    """Whether it was tried and did not land, rather than waiting for one before it."""
    return subtask.landed is None and not subtask.parts and any(each.failure is not None for each in subtask.attempts)


def words_about(failure: f.Failure, branch: str) -> str:
    """The failure of a first attempt, in the words of a person to whom nothing has landed before it."""
    return printable(failure.summary.replace("what landed meanwhile", branch).replace("what landed", branch))


def _on_branch(failure: f.Failure | None) -> str:
    """What is wrong with a commit on the branch, in the words of a person to whom nothing has landed yet."""
    if failure is None:
        return "does not merge"
    if failure.kind == "integration":
        return "is red on top of it"
    return printable(failure.summary.replace("what landed", "what it has"))


def _with_check(what: str, check: f.CheckRun | None, folder: RunFolder) -> str:
    if check is None:
        return what
    log = f"\nthe whole output: {folder.path / check.log}" if check.log else ""
    tail = "\n".join(map(printable, check.output.rstrip().splitlines()[-TAIL:]))
    return f"{what}\n{check.criterion}: {check.command}\n{tail}{log}"


def _by_hand(branch: str, run: RunId) -> str:
    return f"by hand: git checkout {branch} && git merge {result_branch(run)}"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
