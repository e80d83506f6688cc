"""Verbs that begin or go on: plan, run, resume."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.common import (
    HERE,
    AsJson,
    BaseUrl,
    ConfigFile,
    Metrics,
    Repo,
    RunArgument,
    Sandbox,
    configuration,
    run_async,
    the_run,
)
from fleet.cli.display import Detach, Display, NoTui, Plain, present
from fleet.cli.sources import Sets, brought
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.app import Fleet, Order
    from fleet.config import Loaded
    from fleet.core.facts import Ending
    from fleet.core.policy import Reviewing
    from fleet.core.state import RunState
    from fleet.epic import Brought

Epic = Annotated[
    str | None, typer.Argument(help="What should be true afterwards: text, a file, or - (standard input).")
]
Base = Annotated[str | None, typer.Option(help="Start from this commit, branch or tag; HEAD by default.")]
PlanFile = Annotated[
    str | None,
    typer.Option(
        "--plan", metavar="PLAN", help="Run this instead of asking for one: a file, or a name of the library."
    ),
]
Review = Annotated[
    str | None, typer.Option(help="Who lets the plan begin: human (on a terminal), auto (the rules; else), none.")
]
RedBase = Annotated[bool, typer.Option("--allow-red-base", help="Begin even where the gate fails already.")]
EXIT = {"landed": 0, "partial": 1, "cancelled": 1, "aborted": 1, "failed": 3, "budget": 4, None: 130}


def register(app: typer.Typer) -> None:
    app.command()(plan)
    app.command()(run)
    app.command()(resume)


def plan(
    epic: Epic = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it here: .json or .toml.")] = None,
    repo: Repo = HERE,
    base: Base = None,
    base_url: BaseUrl = None,
    config: ConfigFile = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a plan file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask the planner for a plan, and run nothing.

    \b
    Examples:
      fleet plan "Add a health endpoint"
      fleet plan epic.md -o plan.toml && $EDITOR plan.toml && fleet run --plan plan.toml
      git log -1 --format=%B | fleet plan -
    """
    from fleet.app import Order
    from fleet.epic import read_epic

    if epic is None:
        raise UsageError('say what to plan: fleet plan "Add a health endpoint", or a file, or - for standard input')
    _writable(output, force=force)
    loaded = configuration(repo, config, {"models.base_url": base_url})
    _plan(loaded, Order(goal=read_epic(epic), repository=repo, base=base), output, as_json=as_json)


def _plan(loaded: Loaded, order: Order, output: Path | None, *, as_json: bool) -> None:
    from dashboards.words import plan_lines
    from fleet.app import Fleet
    from fleet.cli.common import show
    from fleet.environment import current
    from fleet.epic import dump_plan

    fleet = Fleet(loaded, current())
    typer.echo("asking the planner …", err=True)
    made = run_async(lambda: fleet.plan_only(order))
    toml = output is not None and output.suffix == ".toml"
    if output is not None:
        try:
            output.write_text(dump_plan(made, toml=toml), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{output}: {error.strerror}") from error
    if as_json:
        typer.echo(dump_plan(made, toml=False), nl=False)
    else:
        show(plan_lines(made, fleet.grade(made).all))
        where = output or "plan.toml"
        hint = f"fleet run --plan {where}" if output else "-o plan.toml keeps it; fleet run --plan plan.toml runs it"
        typer.echo(f"\n{hint}", err=True)


def _writable(output: Path | None, *, force: bool) -> None:
    """Look at the place for a plan before the planner is paid for it."""
    if output is None:
        return
    if output.suffix not in {".json", ".toml"}:
        raise UsageError(f"{output}: a plan is written as .json or .toml")
    if output.is_file() and not force:
        raise UsageError(f"{output} exists; --force overwrites it")
    if output.is_dir():
        raise UsageError(f"{output} is a folder; give the name of a file")
    if not os.access(output if output.exists() else output.absolute().parent, os.W_OK):
        raise UsageError(f"{output} can't be written; its folder must exist and be yours")


def run(
    epic: Epic = None,
    plan_file: PlanFile = None,
    sets: Sets = None,
    repo: Repo = HERE,
    base: Base = None,
    name: Annotated[str | None, typer.Option(help="Name the run; its branch is fleet/NAME.")] = None,
    workers: Annotated[int | None, typer.Option(help="Agents at once.")] = None,
    budget: Annotated[float | None, typer.Option(help="Dollars; no new call is made beyond.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Minutes; no new call is made beyond.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens; no new call is made beyond.")] = None,
    base_url: BaseUrl = None,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    allow_red_base: RedBase = False,
    metrics: Metrics = None,
    flat: Annotated[bool, typer.Option("--flat", help="One worker for the whole epic, no decomposition.")] = False,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Plan, and run nothing: as fleet plan.")] = False,
    review: Review = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before the plan runs: --review none.")] = False,
    plain: Plain = False,
    no_tui: NoTui = False,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Plan an epic, and work on it until it has landed.

    The result is the branch fleet/RUN.

    Your checkout is not touched. On a terminal a full screen opens; the run goes on when you leave it (q). Without it,
    Ctrl-C lets running agents finish, a second one stops at once; `fleet resume` goes on.

    Exit codes: 0 all landed, 1 something did not, 2 usage, 3 environment, 4 budget, 130 interrupted.

    \b
    Examples:
      fleet run "Add a health endpoint"
      fleet run epic.md --workers 100 --budget 20 --yes
      fleet run epic.md --yes --detach
      fleet run --plan plan.toml --name health
      fleet run --plan deploy --set version=v2.1.4
      fleet run "Fix the typo in the README" --flat
      fleet run epic.md --review auto
    """
    from fleet.app import Fleet, Order
    from fleet.environment import current

    _one_of(epic, plan_file, plan_only=plan_only, sets=sets)
    flags = {
        "run.workers": workers,
        "run.budget_dollars": budget,
        "run.budget_minutes": minutes,
        "run.budget_tokens": tokens,
        "models.base_url": base_url,
        "box.sandbox": sandbox,
        "checks.allow_red_base": allow_red_base or None,
        "metrics.listen": metrics,
        "run.flat": flat or None,
    }
    loaded = configuration(repo, config, flags)
    fleet = Fleet(loaded, current())
    given = brought(fleet, plan_file, sets, repo) if plan_file is not None else None
    goal = _goal(epic, given) or f"the plan in {plan_file}"
    display = Display(plain=plain, no_tui=no_tui, detach=detach, as_json=as_json)
    reviewing = _reviewing(review, yes=yes, asked=display.interactive or loaded.config.run.review)
    order = _with(given, Order(goal=goal, repository=repo, base=base, name=name, review=reviewing))
    if plan_only:
        return _plan(loaded, order, None, as_json=as_json)
    folder = run_async(lambda: fleet.create(order))
    raise typer.Exit(_code(present(fleet, folder, display)))


def _goal(epic: str | None, given: Brought | None) -> str:
    from fleet.epic import read_epic

    return read_epic(epic) if epic is not None else given.plan.goal if given is not None else ""


def _with(given: Brought | None, order: Order) -> Order:
    if given is None:
        return order
    return replace(order, plan=given.plan, rollback=given.rollback, values=given.values)


def _reviewing(given: str | None, *, yes: bool, asked: bool) -> Reviewing:
    """Who lets the plan begin. A script has nobody to ask, so the rules decide there."""
    if given is not None and yes:
        raise UsageError("--yes is --review none; choose one of them")
    match given:
        case "human" | "auto" | "none":
            return given
        case None:
            return "none" if yes else "human" if asked else "auto"
        case _:
            raise UsageError(f"--review {given}: human, auto or none")


def _one_of(epic: str | None, plan_file: str | None, *, plan_only: bool, sets: list[str] | None) -> None:
    if (epic is None) == (plan_file is None):
        raise UsageError('give either an epic (text, a file, or -) or --plan PLAN: fleet run "Add a health endpoint"')
    if sets and plan_file is None:
        raise UsageError("--set sets a parameter of a plan; name it with --plan")
    if plan_only and epic is None:
        raise UsageError("--plan-only makes a plan, and --plan brings one; choose one of them")


def _code(ending: Ending | int | None) -> int:
    return ending if isinstance(ending, int) else EXIT[ending]


def _staffed(fleet: Fleet, state: RunState) -> Fleet:
    """Itself; raises `UsageError` where what is left to do names workers that are not configured here."""
    from fleet.core.plan import PLANNER

    left = {spec.worker for spec in state.plan.subtasks if not state.subtasks[spec.id].closed} - {PLANNER}
    missing = sorted(left - (fleet.known().workers or left))
    if missing:
        raise UsageError(
            f"what is left of {state.run} needs the worker {', '.join(missing)}, which is not configured here; "
            f"if it was begun with --config FILE, go on with that: fleet resume {state.run} --config FILE"
        )
    return fleet


def resume(
    run: RunArgument = None,
    workers: Annotated[int | None, typer.Option(help="Agents at once, from now on.")] = None,
    budget: Annotated[float | None, typer.Option(help="Dollars in all, from now on.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Minutes in all, from now on.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens in all, from now on.")] = None,
    attempts: Annotated[int | None, typer.Option(help="Attempts in all, from now on.")] = None,
    base_url: BaseUrl = None,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    metrics: Metrics = None,
    allow_red_base: Annotated[
        bool, typer.Option("--allow-red-base", help="Go on even where the gate fails on the base.")
    ] = False,
    plain: Plain = False,
    no_tui: NoTui = False,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run that stopped.

    One that is paused, was interrupted, or ended with something left to do. It asks the service --base-url named last.

    \b
    Examples:
      fleet resume                     the latest run of this repository
      fleet resume RUN --budget 40     one whose budget was spent
    """
    import time
    from pathlib import Path as Folder

    from fleet.app import Fleet
    from fleet.core import facts as f
    from fleet.core.requests import accept
    from fleet.environment import current, user
    from fleet.journal import Journal

    folder = the_run(run)
    state = folder.state()
    now, who = time.time(), user()
    budgets = {"dollars": budget, "minutes": minutes, "tokens": tokens, "attempts": attempts}
    limits = {f"budget_{unit}": value for unit, value in budgets.items()}
    limits |= {"workers": workers, "allow_red_base": allow_red_base or None}
    changed = f.LimitsChanged(at=now, by=who, **limits)
    requests: list[f.LimitsChanged | f.Unpaused] = [f.Unpaused(at=now, by=who)] if state.paused else []
    if any(value is not None for value in limits.values()):
        requests.append(changed)
    holder = folder.holder
    if holder is None and state.ending == "landed":
        raise UsageError(f"{folder.run} has landed; take it with `fleet merge {folder.run} --into BRANCH`")
    if holder is not None and not requests:
        raise UsageError(
            f"{folder.run} is run by process {holder.pid} on {holder.host} already; follow it with "
            f"`fleet status {folder.run}`, or stop it with `fleet cancel {folder.run}`"
        )
    for request in requests:
        if (problem := accept(state, request)) is not None:
            raise UsageError(problem)
    flags = {"box.sandbox": sandbox or state.sandbox, "metrics.listen": metrics}
    flags["models.base_url"] = base_url or state.base_url
    fleet = _staffed(Fleet(configuration(Folder(state.repository), config, flags), current()), state)
    fleet.api_key()
    with Journal(folder.journal) as journal:
        for request in requests:
            journal.ask(request)
    if holder is not None:
        typer.echo(f"{folder.run}: asked for; it is running in another process")
        return
    display = Display(plain=plain, no_tui=no_tui, detach=detach, as_json=as_json)
    raise typer.Exit(_code(present(fleet, folder, display)))
