"""`fleet try`: set-up and gate in the box on a commit, without a run."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from dashboards.text.formats import duration
from dashboards.text.incident_text import advice_lines, cause_lines, check_lines
from dashboards.text.safe import safe
from fleet.app.trials.trial import TrialOrder, try_out
from fleet.cli import common
from fleet.cli.clock import Clock, run_with_clock
from fleet.cli.common import HERE, AsJson, ConfigFile, Repo, Sandbox, SetupNetwork
from fleet.cli.options import flags
from fleet.config.environment import current
from fleet.config.load import Loaded
from fleet.core.views.init_view import TrialView, Verdict
from fleet.errors import UsageError

LINE = 200  # characters of a command
EXIT: dict[Verdict, int] = {"green": 0, "no gate": 0, "red": 1, "set-up failed": 3, "not possible": 3}


def try_command(
    command: Annotated[
        str | None, typer.Argument(metavar="COMMAND", help="A shell command; default: the gate.")
    ] = None,
    repo: Repo = HERE,
    base: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="Try this commit, branch or tag; default: HEAD.")
    ] = None,
    setup_network: SetupNetwork = False,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Try set-up and gate in the box, without a run.

    They run on HEAD as they do in a run: in a worktree of the commit, with the set-up command and included files,
    without the network. With a COMMAND, it runs instead of the gate. No model is called and no key is needed.

    Exit codes: 0 green, 1 red, 2 usage, 3 the set-up failed, or the box is not available.

    \b
    Examples:
      fleet try
      fleet try "pytest -q tests/test_api.py"
      fleet try --setup-network         the set-up command has the network
      fleet try "ls node_modules/.bin" --json | jq -r .check.output
    """
    loaded = common.configuration(repo, config, flags(sandbox=sandbox, setup_network=setup_network))
    order = TrialOrder(repo, base, command)
    trial = run_trial(loaded, order, quiet=as_json)
    common.show_view(trial, trial_lines, as_json=as_json)
    raise typer.Exit(EXIT[trial.verdict])


def run_trial(loaded: Loaded, order: TrialOrder, *, quiet: bool = False) -> TrialView:
    """Try it, and show on standard error how far it is, unless `quiet`."""
    checks, trees = loaded.config.checks, loaded.config.worktrees
    if order.command is None and not checks.gate.strip() and not trees.setup.strip():
        raise UsageError(
            "neither a gate nor a set-up command is configured: find them with `fleet init`, or name a command: "
            'fleet try "make test"'
        )
    clock = Clock(quiet=quiet)
    clock.time("worktree")
    progress = None if quiet else clock.begin
    return run_with_clock(partial(try_out, loaded.config, current(), order, progress), clock)


def trial_lines(trial: TrialView) -> Iterator[str]:
    """The verdict first, then what was run, then what to do."""
    yield f"{trial.verdict.upper()}  {safe(trial.base_name)} {trial.base[:7]}, {duration(trial.seconds)}"
    yield from step_lines(trial)
    yield from (f"  note: {safe(note)}" for note in trial.notes)
    if trial.verdict == "no gate":
        yield "  → no gate is configured: `fleet init` looks for a test command, or set checks.gate in fleet.toml"


def step_lines(trial: TrialView) -> Iterator[str]:
    """Set-up and check with their results, and what to do about a failure."""
    if trial.setup is not None:
        note = ", with the network" if trial.setup.network else ""
        yield from (f"  {line}" for line in check_lines(trial.setup.check, log=_log(trial), note=note))
    if trial.check is not None:
        yield from (f"  {line}" for line in check_lines(trial.check, log=_log(trial)))
    if trial.verdict == "not possible" and trial.failure is not None:
        yield f"  {safe(trial.failure.summary, limit=LINE)}"
        yield from (f"  {line}" for line in cause_lines(trial.causes))
    yield from advice_lines(trial.causes)


def _log(trial: TrialView) -> str:
    """The log of the command that failed."""
    return f"{trial.logs}/{trial.failed.log}" if trial.failed is not None and trial.failed.log else ""
