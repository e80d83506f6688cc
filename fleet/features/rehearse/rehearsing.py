"""Rehearsals: a run that replays the repository's latest commits, free of charge.

The plan has a subtask per commit, and the worker copies the commit's files into its worktree. Everything else is the
same as in any run. Every landed tree must match history.
"""

import json
import os
import re
import resource
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from fleet.config.load import Loaded
from fleet.config.toml import parse_toml, read_text
from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.facts.facts import Failure, Report
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion, Plan
from fleet.core.state.state import RunState
from fleet.engine.adapters import Adapters
from fleet.engine.checks import Gate
from fleet.errors import UsageError
from fleet.features.rehearse.rehearsal_view import MachineView, RehearsalOutcome, RehearsalView, Setting
from fleet.features.rehearse.replay_plan import REPLAYER, PastCommit, commit_of, replay_plan
from fleet.features.rehearse.replay_worktrees import RehearsalReplay, ReplayIntegrator, ReplayWorktrees
from fleet.ports.agents import Meter, WorkerBrief, Workspace
from fleet.ports.journal import Recorder
from fleet.ports.worktrees import EffectError
from worktrees.base.fs import size_of
from worktrees.base.settings import WorktreeSettings
from worktrees.git.program import Git
from worktrees.leases.leases import WorktreeLease
from worktrees.leases.run_worktrees import RunWorktrees, open_trial_worktrees
from worktrees.store.integrator import LineCommit, commits_of, last_commits, missing_objects
from worktrees.store.store import Store, home_of, open_store
from worktrees.target.target import Target, inspect

NOWHERE = "http://127.0.0.1:9"
"""The model service of rehearsals, which don't call models."""
ATTEMPTS, RETRIES = 50, 100
BACKOFF_S, BACKOFF_CAP_S = 0.1, 2.0
TIMES = re.compile(r"(\d+)m([\d.]+)s")
TRIED = 2_000  # characters kept of a gate's output


def for_rehearsal(loaded: Loaded) -> Loaded:
    """Return the configuration of a rehearsal.

    A rehearsal does not call models, so it does not need a key. Its workers don't write lock files, so if the setup
    command may use the network on the base commit, it may use it on all commits: all are from the repository itself.
    """
    config = loaded.config
    models = config.models.model_copy(update={"base_url": NOWHERE})
    worktrees = config.worktrees
    if worktrees.setup_network == "base":
        worktrees = worktrees.model_copy(update={"setup_network": "all"})
    return replace(loaded, config=config.model_copy(update={"models": models, "worktrees": worktrees}))


def rehearsal_policy(policy: Policy, *, publishes: bool) -> Policy:
    """Return the limits of a rehearsal, which does not cost money or ask questions."""
    return policy.model_copy(
        update={
            **{f"budget_{unit}": None for unit in ("dollars", "minutes", "tokens", "attempts")},
            "in_order": True,
            "publishes": publishes,
            "review": False,
            "reviewing": "none",
            "max_attempts": ATTEMPTS,
            "max_retries": RETRIES,
            "backoff_first_s": BACKOFF_S,
            "backoff_cap_s": BACKOFF_CAP_S,
            "answer_wait_s": 0.0,
            "flat": False,
        }
    )


# ---- before the run --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """The commits to replay and their base."""

    target: Target
    head: Sha
    base: Sha
    plan: Plan
    empty: int
    """The number of empty commits, which are left out."""


async def read_line(state_dir: Path, repository: Path, *, last: int, protected: Sequence[str]) -> HistoryLine:
    """Read the latest commits of a repository as a plan. Raises `UsageError` if there are none to replay."""
    target = await inspect(repository)
    store = await open_store(state_dir, target, target.base)
    try:
        commits = await last_commits(store.repository, target.base, last)
        missing = await missing_objects(store.git, commits[0].parent, target.base) if commits else 0
    finally:
        await store.close()
    if not any(commit.paths for commit in commits):
        raise UsageError(f"{target.root} needs at least two commits to rehearse, up to {target.base[:12]}")
    if missing:
        raise UsageError(
            f"{target.root} is a partial clone and lacks {missing} of the objects of these commits",
            hint="fetch them with `git fetch --refetch`, or rehearse fewer commits with --last N",
        )
    past = [PastCommit(commit.id, commit.message, commit.paths) for commit in commits]
    goal = f"Rehearsal: the last {len(commits)} commits of {target.base_name}"
    plan = replay_plan(past, protected=protected, goal=goal)
    return HistoryLine(target, target.base, commits[0].parent, plan, len(commits) - len(plan.subtasks))


def with_given_plan(line: HistoryLine, plan: Plan, name: str) -> HistoryLine:
    """Replace the plan by a user's plan for the same commits. Raises `UsageError`."""
    places = {commit_of(subtask): number for number, subtask in enumerate(line.plan.subtasks)}
    for subtask in plan.subtasks:
        if subtask.worker != REPLAYER or commit_of(subtask) not in places:
            raise UsageError(
                f"{name}: {subtask.id} does not replay one of the last {len(places)} commits",
                hint="write a plan to start from with `fleet rehearse -o plan.toml`",
            )
    numbers = [places[commit_of(subtask)] for subtask in plan.subtasks]
    if numbers != list(range(len(places))):
        raise UsageError(
            f"{name}: the plan must replay all {len(places)} commits, each once, in the order of history",
            hint="write a plan to start from with `fleet rehearse -o plan.toml`",
        )
    return replace(line, plan=plan)


async def try_gate(target: Target, settings: WorktreeSettings, gate: Gate, *, times: int, at: float) -> f.GateTried:
    """Run the gate on the target's base several times, each time on a fresh checkout."""
    trials = list[f.GateTrial]()
    if not gate.criteria:
        return f.GateTried(at=at)
    async with open_trial_worktrees(target, settings) as worktrees:
        try:
            for _ in range(times):
                trials.append(await _try_once(worktrees, gate.criteria[0], target.base))
        except EffectError as error:  # the setup command failed, and would fail again
            why = f"{error.failure.summary}\n{error.failure.evidence}"
            trials.append(f.GateTrial(passed=False, output=why[-TRIED:]))
        setup_s = sum(setup.check.seconds for setup in worktrees.finished_setups())
    return f.GateTried(at=at, command=gate.criteria[0].run or "", trials=tuple(trials), setup_s=setup_s)


async def _try_once(worktrees: RunWorktrees, gate: Criterion, commit: Sha) -> f.GateTrial:
    timed = gate.model_copy(update={"run": f"(\n{gate.run}\n)\ncode=$?; echo; times; exit $code"})
    async with worktrees.lease(commit) as lease:
        check = await lease.check(timed)
        disk_bytes = await size_of(lease.workspace.place.own_folder) if isinstance(lease, WorktreeLease) else 0
    output, processor_s = _without_times(check.output)
    return f.GateTrial(
        passed=check.passed,
        seconds=check.seconds,
        processor_s=processor_s,
        peak_bytes=check.peak_bytes,
        disk_bytes=disk_bytes,
        output=output[-TRIED:],
    )


def _without_times(output: str) -> tuple[str, float]:
    """Split off the output of the shell's `times`, and return the rest and the CPU time in seconds."""
    lines = output.rstrip("\n").split("\n")
    found = [TIMES.findall(line) for line in lines[-2:]]
    if [len(times) for times in found] != [2, 2]:
        return output, 0.0
    return "\n".join(lines[:-2]), sum(60 * int(minutes) + float(rest) for line in found for minutes, rest in line)


# ---- during the run --------------------------------------------------------------------------------------------------


async def rehearsing(engine: Recorder, adapters: Adapters, worktrees: RunWorktrees) -> Adapters:
    """Return the adapters of a run that replays history."""
    state = engine.state

    async def note(what: f.RehearsalNote, subtask: SubtaskId | None, text: str) -> None:
        await engine.record(f.RehearsalNoted(at=adapters.clock.now(), what=what, subtask=subtask, text=text))

    worktrees.leases.setup.must_pass = False
    noted = {(each.what, each.subtask) for each in state.rehearsed}
    replay = RehearsalReplay(worktrees, await _commits(worktrees.store, state.plan), state.base, note, noted)
    return replace(
        adapters,
        workers={**adapters.workers, REPLAYER: ReplayWorker()},
        worktrees=ReplayWorktrees(replay),
        integrator=ReplayIntegrator(replay, adapters.integrator),
    )


async def _commits(store: Store, plan: Plan) -> Mapping[SubtaskId, LineCommit]:
    wanted = {subtask.id: commit for subtask in plan.subtasks if (commit := commit_of(subtask)) is not None}
    commits = await commits_of(store.repository, wanted.values())
    return {id_: commits[commit] for id_, commit in wanted.items()}


# ---- after the run ---------------------------------------------------------------------------------------------------


def head_of(state: RunState) -> Sha:
    """Return the last commit that a rehearsal replays."""
    return (commit_of(state.plan.subtasks[-1]) if state.plan.subtasks else None) or state.base


async def compare(state_dir: Path, target: Target, state: RunState) -> RehearsalOutcome:
    """Compare the resulting tree of the run with history."""
    store = Store(home_of(state_dir, target))
    head = head_of(state)
    try:
        diff = await store.repository.diff(state.tip, head)
        return RehearsalOutcome(head=head, differing=diff.paths, clean=await _is_clean(target.git, state))
    finally:
        await store.close()


async def _is_clean(git: Git, state: RunState) -> bool:
    """Return whether the rehearsal left no branch in the user's repository, except with --branch."""
    return state.policy.publishes or await git.sha(f"refs/heads/{state.result_branch}") is None


def machine(state_dir: Path) -> MachineView:
    """Return the resources of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return MachineView(len(os.sched_getaffinity(0)), memory, shutil.disk_usage(state_dir).free)


def used_processor() -> float:
    """Return the CPU time in seconds of this process and its ended children."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


# ---- advice ----------------------------------------------------------------------------------------------------------
# Writes recommended settings into a repository's fleet.toml, each key with its reason.
#
# Existing keys and other lines of the file stay unchanged.


def write_advice(path: Path, view: RehearsalView, *, gate: str) -> str:
    """Add the settings that a file does not have. Returns a summary."""
    text = read_text(path) if path.exists() else ""
    settings = ([Setting("checks.gate", gate, "the rehearsed gate")] if gate.strip() else []) + list(view.settings)
    present = parse_toml(text, name=str(path))
    new = [setting for setting in settings if _value(present, setting.key) is None]
    kept = [setting.key for setting in settings if setting not in new]
    measured = f"measured by {view.run}, {view.commits} commits up to {view.head[:12]}"
    added = _with_settings(text, new, measured)
    after = parse_toml(added, name=str(path))
    if any(_value(after, setting.key) != setting.value for setting in new):
        keys = ", ".join(f"{setting.key} = {json.dumps(setting.value)}" for setting in new)
        raise UsageError(f"can't add keys to {path} automatically", hint=f"add them manually: {keys}")
    if new:
        try:
            path.write_text(added, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
    wrote = (
        f"wrote {', '.join(setting.key for setting in new)} to {path}"
        if new
        else f"{path} already has all of these settings"
    )
    return f"{wrote}, kept your values of {', '.join(kept)}" if kept else wrote


def _value(data: Mapping[str, Any], key: str) -> object:
    section, _, name = key.partition(".")
    table = data.get(section, {})
    return table.get(name) if isinstance(table, Mapping) else None


def _with_settings(text: str, settings: Sequence[Setting], measured: str) -> str:
    """Add settings to a text: below the header of their table, or in a new table at the end."""
    lines = text.splitlines()
    for section, group in groupby(sorted(settings, key=lambda each: each.key), lambda each: each.key.partition(".")[0]):
        entries = [line for setting in group for line in _lines(setting, measured)]
        header = re.compile(rf"\s*\[\s*{re.escape(section)}\s*\]\s*(#.*)?")
        at = next((number for number, line in enumerate(lines, start=1) if header.fullmatch(line)), None)
        if at is None:
            lines += [*([""] if lines else []), f"[{section}]", *entries]
        else:
            lines[at:at] = entries
    return "\n".join((*lines, ""))


def _lines(setting: Setting, measured: str) -> Iterator[str]:
    yield f"# {setting.reason[0].upper()}{setting.reason[1:]} ({measured})."
    yield f"{setting.key.partition('.')[2]} = {json.dumps(setting.value)}"


# ---- replay ----------------------------------------------------------------------------------------------------------
# The worker of a rehearsal copies the files of a past commit into its worktree, without a model and without cost.
#
# It is a program in the sandbox like that of any other worker, so a rehearsal covers all steps of a real run.


NAMES = 'git diff-tree -r -z --no-renames --name-only --no-commit-id --diff-filter=%s "$1^1" "$1"'
REMOVE = f"{NAMES % 'D'} | xargs -0 -r git --literal-pathspecs rm -q -r -f --ignore-unmatch --"
PUT = f'{NAMES % "d"} | xargs -0 -r git --literal-pathspecs restore --source="$1" --worktree --'
APPLY = f"{REMOVE}; {PUT}"
"""Applies the changes of a commit. Removals come first, because a folder may become a file."""
TIME_S = 600.0
SAID = 300  # characters of git's error output


@dataclass(frozen=True, slots=True)
class ReplayWorker:
    """Replays the commit of its subtask."""

    @property
    def model(self) -> str | None:
        return None

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> Report | Failure:
        """Copy the files of the commit into the worktree."""
        del meter
        commit = commit_of(brief.subtask)
        if commit is None:
            return Failure(kind="other", summary="the subtask does not have a commit to replay")
        result = await workspace.run(f"set -- {shlex.quote(commit)}; {APPLY}", timeout_s=TIME_S)
        trouble = f". git reported: {result.output.strip()[-SAID:]}" if result.exit_code != 0 else ""
        return Report(status="done", summary=f"as in {commit}{trouble}")
