"""The worker of a rehearsal: it puts the files of a commit of history into its worktree. No model, no cost.

It is a program in the box like any other worker's, so a rehearsal goes through everything that a real run does. With
faults, some attempts go wrong here the way agents do.
"""

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agents.workers.command import outcome
from fleet.core.plans.replay import commit_of
from fleet.core.policy.replay_faults import WorkFault
from fleet.core.state.facts import Failure, Report
from fleet.ports.agents import Meter, WorkerBrief, Workspace

NAMES = 'git diff-tree -r -z --no-renames --name-only --no-commit-id --diff-filter=%s "$1^1" "$1"'
REMOVE = f"{NAMES % 'D'} | xargs -0 -r git --literal-pathspecs rm -q -r -f --ignore-unmatch --"
PUT = f'{NAMES % "d"} | xargs -0 -r git --literal-pathspecs restore --source="$1" --worktree --'
APPLY = f"{REMOVE}; {PUT}"
"""The paths that a commit changed, as it has them. What it removed goes first: a folder may become a file."""
HANGS_S = 1.0
TIME_S = 600.0
SAID = 300  # characters of what git could not do
BEFORE: dict[WorkFault, str] = {
    "dies": "kill -KILL $$",
    "hangs": "sleep 600",
    "claims": "true",
}
"""What a faulty agent does instead of its work, and"""
AFTER: dict[WorkFault, str] = {
    "drifts": "echo unasked >> unasked-for.txt",
    "corrupts": f'{NAMES % "d"} | xargs -0 -r -n 1 sh -c \'rm -f -- "$0" && echo wrong > "$0"\'',
}
"""what it does after it."""


@dataclass(frozen=True, slots=True)
class ReplayWorker:
    """Replays the commit that its subtask names."""

    fault_of: Callable[[WorkerBrief], Awaitable[WorkFault | None]]
    """What goes wrong with an attempt."""

    @property
    def model(self) -> str | None:
        return None

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> Report | Failure:
        """Put the files of the commit into the worktree."""
        del meter
        commit = commit_of(brief.subtask)
        if commit is None:
            return Failure(kind="other", summary="the subtask names no commit to replay")
        fault = await self.fault_of(brief)
        script = BEFORE.get(fault, APPLY) if fault is not None else APPLY
        if fault in AFTER:
            script = f"{script}; {AFTER[fault]}"
        line = f"set -- {shlex.quote(commit)}; {script}"
        result = await workspace.run(line, timeout_s=HANGS_S if fault == "hangs" else TIME_S)
        if fault in BEFORE and fault != "claims":
            return outcome(result, "")
        trouble = f"; git said: {result.output.strip()[-SAID:]}" if result.exit_code != 0 else ""
        return Report(status="done", summary=f"as in {commit}{trouble}")
