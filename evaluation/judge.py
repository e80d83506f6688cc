"""Repeats the checks of a run in sandboxes: on its base, on the known solution, and held-out checks on its result."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio

from evaluation.cases import Case, commit_with, files_of, text_of
from evaluation.runs import Played, Service, box_config, environment_of
from evaluation.score import Score, criteria_of, first_plan, score
from fleet.app.wiring import Wiring
from fleet.config.load import load_config
from fleet.core.plans.plan import Criterion
from fleet.core.state.state import RunState
from fleet.errors import FleetError
from fleet.ports.worktrees import EffectError
from worktrees.base.settings import WorktreeSettings
from worktrees.leases.run_worktrees import open_trial_worktrees
from worktrees.target.target import inspect

CHECK_S = 120.0  # a check of an evaluation takes a second


def box_settings(service: Service, folder: Path) -> WorktreeSettings:
    """Return the settings of checks. Read once, so that the tree may change in the meantime."""
    environment, flags = environment_of(folder, service), {"box.sandbox": service.sandbox}
    config = box_config(service, folder)
    loaded = load_config(environ=environment, flags=flags, config_file=config, user_file=None)
    return Wiring(loaded.config, environment).worktrees


def judge(case: Case, played: Played, settings: WorktreeSettings) -> Score:
    """The score of a run that has ended."""
    state, repository = played.state, played.repository
    boxes = Boxes(repository, replace(settings, state_dir=played.state_folder))
    planned = {each.run: each for subtask in first_plan(state).values() for each in criteria_of(subtask)}
    result = frozenset(files_of(repository, state.tip))
    known = commit_with(repository, played.base, {**_written_by_the_run(case, state, repository), **case.solution})
    on_base = boxes.passed(played.base, planned.values())
    on_known = boxes.passed(known, planned.values())
    held = boxes.passed(commit_with(repository, state.tip, case.held), case.criteria)
    return score(
        state,
        solved=all(held.get(check.run or "", False) for check in case.criteria),
        fails={command for command, passed in on_base.items() if not passed},
        passes={command for command, passed in on_known.items() if passed},
        files=result | files_of(repository, played.base),
    )


def _written_by_the_run(case: Case, state: RunState, repository: Path) -> dict[str, str]:
    """Files that neither the base nor the known solution has, such as tests: the known solution has to pass them."""
    new = files_of(repository, state.tip) - set(case.base) - set(case.solution)
    return {path: text_of(repository, state.tip, path) for path in new if path not in {"fleet.toml", ".gitignore"}}


@dataclass(frozen=True)
class Boxes:
    """Runs commands on commits of a repository, each in a sandbox and on a separate checkout."""

    repository: Path
    settings: WorktreeSettings

    def passed(self, commit: str, criteria: Iterable[Criterion]) -> dict[str, bool]:
        """Whether each command passes. Raises `FleetError` where no box or worktree can be made."""
        return anyio.run(partial(self._passed, commit, tuple(criteria)))

    async def _passed(self, commit: str, criteria: Sequence[Criterion]) -> dict[str, bool]:
        found: dict[str, bool] = {}
        if not criteria:
            return found
        target = await inspect(self.repository, commit)
        async with open_trial_worktrees(target, self.settings) as worktrees:
            for criterion in criteria:
                limited = criterion.model_copy(update={"timeout_s": min(criterion.timeout_s, CHECK_S)})
                try:
                    async with worktrees.lease(target.base) as lease:
                        check = await lease.check(limited)
                except EffectError as error:
                    raise FleetError(f"can't run a check: {error.failure.summary}") from None
                found[criterion.run or ""] = check.passed
        return found
