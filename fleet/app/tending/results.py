"""What came of a round, read from its run and from the commits that were pushed."""

from collections.abc import Mapping
from pathlib import Path

from fleet.app.tending.branch import PullBranch
from fleet.app.tending.messages import answer_done, answer_not_done, answer_unchanged
from fleet.app.tending.record import Round
from fleet.core.base.ids import RunId, Sha
from fleet.core.state.subtask_state import SubtaskState
from fleet.errors import FleetError
from fleet.runs.run_folder import RunFolder, runs_by_start, runs_dir


async def answers(found: Round, folder: RunFolder, branch: PullBranch) -> Mapping[str, str]:
    """The answer to each thread of a round, by its key."""
    state = folder.state()
    commits: dict[str, Sha] = {}
    if found.pushed is not None and found.onto is not None:
        runs = frozenset({found.run, *_relandings(folder)})
        commits = await branch.landed(found.pushed, found.onto, runs)
    return {
        asked.key: _answer(state.subtasks.get(asked.subtask), commits.get(asked.subtask), found.unfit)
        for asked in found.threads
    }


def dollars_of(state_dir: Path, run: RunId) -> float:
    """What a run and those that landed its result again have cost; 0 if it is gone."""
    folder = RunFolder(runs_dir(state_dir) / run)
    if not folder.journal.is_file():
        return 0.0
    return sum(_dollars(runs_dir(state_dir) / each) for each in (run, *_relandings(folder)))


def _dollars(path: Path) -> float:
    try:
        return RunFolder(path).state().spent.priced_dollars or 0.0
    except FleetError:
        return 0.0


def _relandings(folder: RunFolder) -> list[RunId]:
    """The runs that landed the result of this one again."""
    return [
        each.folder.run
        for each in runs_by_start(folder.path.parents[1])
        if each.state is not None and each.state.relanding is not None and each.state.relanding.run == folder.run
    ]


def _answer(subtask: SubtaskState | None, commit: Sha | None, unfit: str | None) -> str:
    last = subtask.last if subtask is not None else None
    summary = last.report.summary if last is not None and last.report is not None else ""
    if commit is not None:
        return answer_done(commit, summary)
    if subtask is not None and subtask.unchanged:
        return answer_unchanged(summary)
    if unfit is not None and subtask is not None and subtask.landed is not None:
        return answer_not_done(f"It was done, but does not fit on what was pushed meanwhile: {unfit}")
    failure = last.failure.summary if last is not None and last.failure is not None else "it was not tried"
    return answer_not_done(summary or failure)
