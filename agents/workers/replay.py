"""The worker of a rehearsal: it puts the files of a commit of history into its worktree. No model, no cost.

It is a program in the box like any other worker's, so a rehearsal goes through everything that a real run does.
"""

import shlex
from dataclasses import dataclass

from fleet.core.plans.replay import commit_of
from fleet.core.state.facts import Failure, Report
from fleet.ports.agents import Meter, WorkerBrief, Workspace

NAMES = 'git diff-tree -r -z --no-renames --name-only --no-commit-id --diff-filter=%s "$1^1" "$1"'
REMOVE = f"{NAMES % 'D'} | xargs -0 -r git --literal-pathspecs rm -q -r -f --ignore-unmatch --"
PUT = f'{NAMES % "d"} | xargs -0 -r git --literal-pathspecs restore --source="$1" --worktree --'
APPLY = f"{REMOVE}; {PUT}"
"""The paths that a commit changed, as it has them. What it removed goes first: a folder may become a file."""
TIME_S = 600.0
SAID = 300  # characters of what git could not do


@dataclass(frozen=True, slots=True)
class ReplayWorker:
    """Replays the commit that its subtask names."""

    @property
    def model(self) -> str | None:
        return None

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> Report | Failure:
        """Put the files of the commit into the worktree."""
        del meter
        commit = commit_of(brief.subtask)
        if commit is None:
            return Failure(kind="other", summary="the subtask names no commit to replay")
        result = await workspace.run(f"set -- {shlex.quote(commit)}; {APPLY}", timeout_s=TIME_S)
        trouble = f"; git said: {result.output.strip()[-SAID:]}" if result.exit_code != 0 else ""
        return Report(status="done", summary=f"as in {commit}{trouble}")
