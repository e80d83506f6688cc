"""Completion: the names in journals that options and arguments offer at the cursor. Typer knows verbs and options.

A shell sees the names, so each is checked again with `is_slug`. A journal that can't be read offers nothing.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined] # Typer exports it to no type checker

from fleet.config.environment import current
from fleet.config.load import load_config
from fleet.core.base.ids import is_slug
from fleet.core.history.evolve import evolve
from fleet.errors import FleetError
from fleet.read.run import RunSnapshot, just_after
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder, find_run, git_folder, runs_by_start

VARIABLE = "_FLEET_COMPLETE"
"""With this variable, Typer completes a command line instead of running it."""
PLACES = {
    "bash": ("~/.local/share/bash-completion/completions/fleet", "open a new shell to use it"),
    "zsh": ("~/.zfunc/_fleet", "add to ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": ("~/.config/fish/completions/fleet.fish", "open a new shell to use it"),
}
"""The shells: where `--install` writes the script of each, and what else is needed."""
_KINDS = (
    *("run_started", "plan_revised", "plan_rejected", "rollback_started"),
    *("question_asked", "question_answered", "retry_requested"),
)
"""The facts that name subtasks and questions: few, also in a long journal."""


def script(shell: str) -> str:
    """What a shell loads for completion."""
    return f"{get_completion_script(prog_name='fleet', complete_var=VARIABLE, shell=shell)}\n"


def run_names(context: typer.Context) -> list[str]:
    """The runs of the repository, the latest first; those of all repositories if it has none."""
    with suppress(FleetError, OSError):
        return [folder.run for folder in _runs(context)]
    return []


def subtask_ids(context: typer.Context) -> list[str]:
    """The subtasks of the run that `--run` names, or of the latest."""
    run = _run(context)
    return [id_ for id_ in run.plan.ids if is_slug(id_)] if run is not None else []


def question_ids(context: typer.Context) -> list[str]:
    """The open questions of the run, the latest first."""
    run = _run(context)
    return [question.id for question in reversed(run.question_lines())] if run is not None else []


def _runs(context: typer.Context) -> list[RunFolder]:
    here = git_folder(repository_of(context))
    runs = [run for run in reversed(runs_by_start(_state_dir())) if is_slug(run.folder.run)]
    return [run.folder for run in [run for run in runs if run.is_of(here)] or runs]


def repository_of(context: typer.Context) -> Path:
    return Path(context.params.get("repo") or ".")


def _state_dir() -> Path:
    return Path(load_config(environ=current(), repository=None).config.state.dir)


def _run(context: typer.Context) -> RunSnapshot | None:
    """The run after the few facts that name subtasks and questions."""
    named: Any = context.params.get("named")
    run: RunSnapshot | None = None
    with suppress(FleetError, OSError, LookupError, ValueError):
        folder = find_run(_state_dir(), named) if named else _runs(context)[0]
        with Journal(folder.journal) as journal:
            for fact in journal.facts_of(*_KINDS):
                run = just_after(evolve(run.state if run is not None else None, fact))
    return run
