"""The verb that replays a repository's own history: everything that a run does, before the first dollar."""

from pathlib import Path
from typing import Annotated

import typer

from dashboards.text.rehearsal_text import plan_line, rehearsal_lines
from fleet.app.advice import write_advice
from fleet.app.fleet import Fleet, Order
from fleet.app.rehearse import Line, for_rehearsal, read_line, with_given_plan
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, ConfigFile, Force, Repo, Sandbox
from fleet.cli.live import rehearsal as live
from fleet.cli.options import flags, limits_of
from fleet.cli.plan_sources import load_plan_argument
from fleet.cli.verbs.work.begin import EXIT, PlanFile, check_output
from fleet.cli.verbs.work.limits import Workers
from fleet.config.environment import current
from fleet.core.state.facts import Rehearsal
from fleet.errors import UsageError
from fleet.plans.input_files import dump_plan
from fleet.runs.repository import root_of

SHARE = 0.2
MOST = 500

Last = Annotated[
    int, typer.Option("--last", metavar="N", min=1, max=MOST, help="How many commits, along first parents.")
]
Gate = Annotated[
    str | None, typer.Option("--gate", metavar="COMMAND", help="The gate instead of checks.gate; empty: none.")
]
Faults = Annotated[bool, typer.Option("--with-faults", help="Mix faults in: dead agents, lost worktrees, kills …")]
Share = Annotated[
    float, typer.Option("--faults", metavar="N", min=0.0, max=1.0, help="The share of attempts that get a fault.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="The random seed of the faults.")]
Tries = Annotated[
    int, typer.Option("--tries", metavar="N", min=1, max=20, help="How often the gate runs on the newest commit.")
]
Write = Annotated[bool, typer.Option("--write", help="Write what was measured into fleet.toml, with the reasons.")]
Branch = Annotated[bool, typer.Option("--branch", help="Keep the result as the branch fleet/RUN.")]


def rehearse(
    last: Last = 100,
    plan_file: PlanFile = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file: the plan, without replaying it."),
    ] = None,
    repo: Repo = HERE,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The rehearsal's name.")] = None,
    workers: Workers = None,
    gate: Gate = None,
    tries: Tries = live.TRIES,
    with_faults: Faults = False,
    share: Share = SHARE,
    seed: Seed = 1,
    write: Write = False,
    branch: Branch = False,
    force: Force = False,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Replay the repository's last commits as a run, free of charge.

    Each commit is a subtask, and its patch is what the worker does; set-up, gate, merge queue and landing are the real
    ones. At the end the tree must equal history's. It shows whether the gate is green in the box, what it costs,
    whether it is flaky, how many workers this machine can run, and what to set. Nothing is left in the repository.

    Exit codes: 0 the tree equals history's, 1 it differs, 2 usage, 3 environment, 130 interrupted.

    \b
    Examples:
      fleet rehearse                            the last 100 commits
      fleet rehearse --last 20 --gate "make test" --write
      fleet rehearse --with-faults              agents die, worktrees vanish, the engine is killed
      fleet rehearse -o plan.toml && $EDITOR plan.toml && fleet rehearse --plan plan.toml
    """
    loaded = common.configuration(repo, config, flags(limits_of(workers=workers), sandbox=sandbox, gate=gate))
    if write and root_of(repo) is None:
        raise UsageError("--write needs a worktree to put fleet.toml into")
    fleet = Fleet(for_rehearsal(loaded), current())
    line = _line(fleet, repo, plan_file, last=last)
    if output is not None:
        check_output(output, force=force)
        common.write_file(output, dump_plan(line.plan, toml=output.suffix == ".toml"))
        typer.echo(f"wrote {output}: {plan_line(line.plan)}")
        return
    order = Order(
        goal=line.plan.goal,
        repository=repo,
        base=line.base,
        name=name or _name(fleet, line),
        plan=line.plan,
        rehearsal=Rehearsal(faults=share if with_faults else 0.0, seed=seed),
        publishes=branch,
    )
    folder = common.run_async(lambda: fleet.create(order))
    view = live.rehearse(fleet, folder, tries=tries, quiet=as_json)
    if view is None:
        raise typer.Exit(EXIT[None])
    common.show_view(view, rehearsal_lines, as_json=as_json)
    if write and (root := root_of(repo)) is not None:
        typer.echo(write_advice(root / "fleet.toml", view, gate=fleet.config.checks.gate), err=as_json)
    raise typer.Exit(0 if view.succeeded else 1)


def _line(fleet: Fleet, repo: Path, plan_file: str | None, *, last: int) -> Line:
    """The commits to be replayed, in the plan of a person if there is one."""
    protected = fleet.config.checks.protected
    line = common.run_async(lambda: read_line(fleet.state_dir, repo, last=last, protected=protected))
    if plan_file is None:
        return line
    return with_given_plan(line, load_plan_argument(fleet.rehearsal_known, plan_file, None, repo).plan, plan_file)


def _name(fleet: Fleet, line: Line) -> str:
    """A name that says what it is, wherever runs are listed."""
    taken = {path.name for path in (fleet.state_dir / "runs").glob("rehearsal-*")}
    stem = f"rehearsal-{line.head[:7]}"
    return next(name for number in range(1, len(taken) + 2) if (name := f"{stem}-{number}") not in taken)
