"""Verbs that start or continue work: plan, run, resume."""

import re
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, cast

import typer

from dashboards.text.plan_review import comparable_lines, plan_lines, run_estimate_lines
from dashboards.text.tables import limits_lines
from fleet.app.fleet import Fleet, Order, player_of, withdraw_cancel
from fleet.app.input_files import GivenEpic, GivenPlan, dump_plan, read_epic
from fleet.app.past_runs import read_evidence
from fleet.cli import common
from fleet.cli.common import (
    EXIT,
    HERE,
    AsJson,
    BaseUrl,
    Budget,
    ConfigFile,
    Force,
    Limits,
    Repo,
    Review,
    RunArgument,
    RunClock,
    RunName,
    Sandbox,
    SetupNetwork,
    Workers,
    Yes,
    flags,
    limits_of,
    reviewing_of,
    run_with_clock,
)
from fleet.cli.display import Detach, Display, NoTui, Plain, Web, work_and_show
from fleet.cli.plan_editor import PlanFile, Sets, check_plan_output, load_plan_argument
from fleet.cli.terminal_data import start_pages
from fleet.cli.verbosity import show_note
from fleet.config.environment import current, user
from fleet.config.load import Loaded
from fleet.core.facts import facts as f
from fleet.core.facts.facts import Ending, LimitsChanged
from fleet.core.plans.parameters import flat_plan
from fleet.errors import UsageError
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.read.costs import EstimateView, estimate_view, plan_estimates
from fleet.read.run import RunSnapshot, just_after
from fleet.read.run_view import limits_view
from fleet.runs.journal import Holder, locked_message
from fleet.runs.run_folder import RunFolder

# ---- limits ----------------------------------------------------------------------------------------------------------
# The verb that shows and changes the limits of a run. A change is a fact in its journal.


Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes", metavar="MINUTES", help="Maximum active time in minutes. fleet does not make calls after that."
    ),
]
Tokens = Annotated[
    int | None,
    typer.Option(
        "--tokens", metavar="N", help="Maximum number of tokens. fleet does not make calls that would exceed it."
    ),
]
Attempts = Annotated[int | None, typer.Option("--attempts", metavar="N", help="Maximum number of attempts.")]
NotBetween = Annotated[
    str | None,
    typer.Option(
        "--not-between",
        metavar="HOURS",
        help="Quiet hours in local time, such as 22:00-07:00. New work waits until they end.",
    ),
]


def limits(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    workers: Workers = None,
    budget: Budget = None,
    minutes: Minutes = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="Set --minutes so that they end at this time: 18:30, or 2026-11-02T18:30."
        ),
    ] = None,
    tokens: Tokens = None,
    attempts: Attempts = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show or change the limits of a run.

    Without options, it shows the limits. A change applies to an active run immediately, and to a stopped run when you
    resume it.

    \b
    Examples:
      fleet limits
      fleet limits RUN --workers 5
      fleet limits RUN --budget 40 --until 18:30
    """
    given = limits_of(workers=workers, budget=budget, minutes=minutes, tokens=tokens, attempts=attempts)
    if all(value is None for value in (*given.values(), until)):
        _show(common.run_to_read(run, named, repo), as_json=as_json, changed=False)
        return
    if minutes is not None and until is not None:
        raise UsageError("--minutes and --until can't be used together", hint="use one of them")
    folder = common.run_to_change(run, named, repo, yes=yes)
    state, now = folder.state(), time.time()
    if until is not None:
        if not folder.alive:
            raise UsageError(
                f"{folder.run} is not running, so --until can't be converted to minutes",
                hint=f"use --minutes, or run `fleet resume {folder.run}` first",
            )
        given["budget_minutes"] = (state.seconds(now) + _seconds_until(until, now)) / 60
    request = LimitsChanged(at=now, by=user(), **given)
    common.check_request(state, request)
    common.send_requests(folder, request)
    _show(folder, as_json=as_json, changed=True)


def _show(folder: RunFolder, *, as_json: bool, changed: bool) -> None:
    view = limits_view(folder.requested_state(), time.time(), alive=folder.alive, changed=changed)
    common.show_view(view, limits_lines, as_json=as_json)


def _seconds_until(text: str, now: float) -> float:
    """The seconds until a time of this day or the next, or until a moment."""
    here = datetime.fromtimestamp(now).astimezone()
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}", text):
            hour, minute = map(int, text.split(":"))
            at = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
            at += timedelta(days=0 if at > here else 1)
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo is not None else at.replace(tzinfo=here.tzinfo)
    except ValueError as error:
        raise UsageError(f"invalid time for --until: {text!r}", hint="use 18:30 or 2026-11-02T18:30") from error
    if (seconds := at.timestamp() - now) <= 0:
        raise UsageError(
            f"--until {text} is in the past", hint="run `fleet pause` or `fleet cancel` to stop the run now"
        )
    return seconds


# ---- begin -----------------------------------------------------------------------------------------------------------


Epic = Annotated[
    str | None,
    typer.Argument(metavar="EPIC", help="The goal: text, a file, - for stdin, or an issue such as gh:OWNER/REPO#12."),
]
Base = Annotated[
    str | None, typer.Option(metavar="COMMIT", help="The commit, branch or tag to start from (default: HEAD).")
]
RedBase = Annotated[bool, typer.Option("--allow-red-base", help="Continue even if the gate fails on the base commit.")]
OnlyEstimate = Annotated[
    bool,
    typer.Option(
        "--estimate", help="Print the cost and duration of comparable subtasks, then exit. Does not call a model."
    ),
]


def plan(
    epic: Epic = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file: .json or .toml.")
    ] = None,
    repo: Repo = HERE,
    base: Base = None,
    base_url: BaseUrl = None,
    config: ConfigFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Create a plan without running it.

    \b
    Examples:
      fleet plan "Add a health endpoint"
      fleet plan epic.md -o plan.toml && $EDITOR plan.toml && fleet run --plan plan.toml
      git log -1 --format=%B | fleet plan -
    """
    if epic is None:
        raise UsageError("no epic given", hint='pass a goal, a file or -: fleet plan "Add a health endpoint"')
    if output is not None:
        check_plan_output(output, force=force)
    loaded = common.configuration(repo, config, flags(base_url=base_url))
    given = _read_epic(epic)
    order = Order(goal=given.goal, repository=repo, base=base, issue=given.issue)
    _write_plan(loaded, order, output, as_json=as_json)


def _write_plan(loaded: Loaded, order: Order, output: Path | None, *, as_json: bool) -> None:
    fleet = Fleet(loaded, current())
    show_note("calling the planner …")
    clock = RunClock(quiet=as_json)
    clock.time("planner")
    plan = run_with_clock(lambda: fleet.plan_only(order), clock)
    if output is not None:
        common.write_file(output, dump_plan(plan, toml=output.suffix == ".toml"))
    if as_json:
        typer.echo(dump_plan(plan, toml=False), nl=False)
        return
    past = common.run_async(lambda: read_evidence(loaded.config, order.repository))
    costs = comparable_lines(plan_estimates(plan.subtasks, past.estimates))
    common.show([*plan_lines(plan, fleet.wiring.grade(plan).all), *costs])
    keep = "To keep this plan, add -o plan.toml. To run it, use fleet run --plan plan.toml."
    show_note(f"\n{f'To run this plan: fleet run --plan {output}' if output else keep}")


def run(
    epic: Epic = None,
    plan_file: PlanFile = None,
    sets: Sets = None,
    repo: Repo = HERE,
    base: Base = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of the run. Its branch is fleet/NAME.")
    ] = None,
    workers: Workers = None,
    budget: Budget = None,
    minutes: Minutes = None,
    tokens: Tokens = None,
    attempts: Attempts = None,
    not_between: NotBetween = None,
    base_url: BaseUrl = None,
    sandbox: Sandbox = None,
    setup_network: SetupNetwork = False,
    config: ConfigFile = None,
    allow_red_base: RedBase = False,
    metrics: common.Metrics = None,
    otlp: common.Otlp = None,
    flat: Annotated[
        bool, typer.Option("--flat", help="Give the full epic to one worker, without splitting it.")
    ] = False,
    only_estimate: OnlyEstimate = False,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Create a plan and exit, like `fleet plan`.")] = False,
    review: Review = None,
    yes: Yes = False,
    plain: Plain = False,
    no_tui: NoTui = False,
    web: Web = False,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Plan an epic, build it and land it.

    The result is the branch fleet/RUN. fleet does not touch your checkout. On a terminal, the terminal UI opens. If
    you leave it with q, the run continues. With --plain, Ctrl-C stops the run after the running agents have finished,
    and a second Ctrl-C stops it immediately. `fleet resume` continues it.

    Exit codes: 0 everything landed, 1 not everything landed, 2 usage, 3 environment, 4 budget, 130 interrupted.

    \b
    Examples:
      fleet run "Add a health endpoint"
      fleet run epic.md --workers 100 --budget 20 --yes --detach
      fleet run gh:acme/shop#12 --name issue-12
      fleet run --plan plan.toml --flat
      fleet run --plan deploy --set version=v2.1.4
      fleet run epic.md --review auto --web --not-between 22:00-07:00
      fleet run --plan plan.toml --workers 8 --estimate
    """
    asked = _Asked(epic, plan_file, sets, review, yes=yes, plan_only=plan_only, only_estimate=only_estimate)
    limits = limits_of(workers=workers, budget=budget, minutes=minutes, tokens=tokens, attempts=attempts)
    how = {"sandbox": sandbox, "setup_network": setup_network, "flat": flat, "not_between": not_between}
    given = flags(limits, base_url=base_url, metrics=metrics, otlp=otlp, allow_red_base=allow_red_base, **how)
    fleet = Fleet(common.configuration(repo, config, given), current())
    display = Display(plain=plain, no_tui=no_tui, detach=detach, as_json=as_json, web=web)
    raise typer.Exit(exit_code(work_and_show(fleet, _create(fleet, asked, display, repo, base, name), display)))


@dataclass(frozen=True, slots=True)
class _Asked:
    """The epic or plan, and the options about it. Raises `UsageError` if options contradict each other."""

    epic: str | None
    plan_file: str | None
    sets: list[str] | None
    review: str | None
    yes: bool
    plan_only: bool
    only_estimate: bool

    def __post_init__(self) -> None:
        if (self.epic is None) == (self.plan_file is None):
            problem = "no epic given" if self.epic is None else "EPIC and --plan can't be used together"
            raise UsageError(problem, hint='use fleet run "Add a health endpoint" or fleet run --plan plan.toml')
        if self.sets and self.plan_file is None:
            raise UsageError("--set requires --plan", hint="pass the plan: fleet run --plan PLAN --set NAME=VALUE")
        if self.plan_only and self.epic is None:
            raise UsageError("--plan and --plan-only can't be used together", hint="use one of them")
        if self.plan_only and self.only_estimate:
            raise UsageError("--plan-only and --estimate can't be used together", hint="use one of them")


def _create(
    fleet: Fleet, asked: _Asked, display: Display, repository: Path, base: str | None, name: str | None
) -> RunFolder:
    """Create the run. With --estimate or --plan-only, print the result and exit instead."""
    epic, loaded = _read_epic(asked.epic), fleet.loaded
    by_human = display.interactive or fleet.config.run.review
    reviewing = reviewing_of(asked.review, yes=asked.yes, by_human=by_human)
    order = Order(epic.goal, repository, base, name, issue=epic.issue, review=reviewing)
    if asked.plan_file is not None:
        plan = load_plan_argument(fleet.wiring.known, asked.plan_file, asked.sets, repository)
        order = _with_plan(order, plan, asked.plan_file)
    if asked.only_estimate:
        common.show_view(_estimate(loaded, order), run_estimate_lines, as_json=display.as_json)
        raise typer.Exit
    if asked.plan_only:
        _write_plan(loaded, order, None, as_json=display.as_json)
        raise typer.Exit
    return common.run_async(lambda: fleet.create(order))


def _estimate(loaded: Loaded, order: Order) -> EstimateView:
    plan = flat_plan(order.plan) if order.plan is not None and loaded.config.run.flat else order.plan
    return estimate_view(plan, common.run_async(lambda: read_evidence(loaded.config, order.repository)).estimates)


def _read_epic(epic: str | None) -> GivenEpic:
    """Read the epic, if one is given. A feature reads issues."""
    argument = epic.strip() if epic is not None else ""
    for place in (
        place for each in FEATURES.values() for begin, place in each.epics.items() if re.match(begin, argument)
    ):
        if (found := common.run_async(partial(load_part(place), argument, current()))) is not None:
            return cast("GivenEpic", found)
    return GivenEpic(read_epic(epic) if epic is not None else "")


def _with_plan(order: Order, loaded: GivenPlan, name: str) -> Order:
    goal = loaded.plan.goal or f"the plan in {name}"
    return replace(order, goal=goal, plan=loaded.plan, rollback=loaded.rollback, values=loaded.values)


def exit_code(ending: Ending | int | None) -> int:
    return ending if isinstance(ending, int) else EXIT[ending]


# ---- resume ----------------------------------------------------------------------------------------------------------
# `fleet resume`: continues a run with its original options, or with new limits.


def resume(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    workers: Workers = None,
    budget: Budget = None,
    minutes: Minutes = None,
    tokens: Tokens = None,
    attempts: Attempts = None,
    not_between: NotBetween = None,
    base_url: BaseUrl = None,
    sandbox: Sandbox = None,
    setup_network: SetupNetwork = False,
    config: ConfigFile = None,
    metrics: common.Metrics = None,
    otlp: common.Otlp = None,
    allow_red_base: RedBase = False,
    plain: Plain = False,
    no_tui: NoTui = False,
    web: Web = False,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Resume a stopped run.

    Continues a run that was paused or interrupted, or that ended before everything landed. The run keeps its original
    options, --config and FLEET_* variables. Options of this command override them. fleet reads configuration files
    again. A finished rehearsal prints its result again.

    \b
    Examples:
      fleet resume                     the latest run in this repository
      fleet resume RUN --budget 40     with a higher budget
    """
    folder = common.run_to_change(run, named, repo, yes=yes)
    state, holder = folder.state(), folder.holder
    limits = limits_of(workers=workers, budget=budget, minutes=minutes, tokens=tokens, attempts=attempts)
    requests = _requests(just_after(state), holder, {**limits, "allow_red_base": allow_red_base or None})
    how: dict[str, str | bool | None] = {"sandbox": sandbox, "setup_network": setup_network, "not_between": not_between}
    given = flags(None, base_url=base_url, metrics=metrics, otlp=otlp, **how)
    fleet = Fleet(common.configuration_of(state, config, given), current()).of_run(state)
    fleet.require_workers_for(state)
    fleet.require_models_for(state)
    if holder is None:
        withdraw_cancel(folder)
    common.send_requests(folder, *requests)
    if holder is not None:
        message = "continues in the process that runs it"
        common.confirm_request(folder, requests[0].kind, message, as_json=as_json)
        return
    if (player := player_of(state)) is not None and not detach:
        if web:
            start_pages(folder)
        is_changed = any(isinstance(request, f.LimitsChanged) for request in requests)
        raise typer.Exit(player.resume(fleet, folder, changed=is_changed, as_json=as_json))
    display = Display(plain=plain, no_tui=no_tui, detach=detach, as_json=as_json, web=web)
    raise typer.Exit(exit_code(work_and_show(fleet, folder, display)))


def _requests(run: RunSnapshot, holder: Holder | None, limits: Limits) -> list[f.LimitsChanged | f.Unpaused]:
    """The requests to the run, checked. Raises `UsageError` if the run can't be resumed."""
    now, by = time.time(), user()
    requests: list[f.LimitsChanged | f.Unpaused] = [f.Unpaused(at=now, by=by)] if run.figures.is_paused else []
    if any(value is not None for value in limits.values()):
        if holder is not None:
            raise UsageError(f"{run.run} is already running", hint=f"change its limits with `fleet limits {run.run}`")
        requests.append(f.LimitsChanged(at=now, by=by, **limits))
    if holder is None and run.ending is not None and run.ending.is_good and not run.figures.rehearsal:
        raise UsageError(f"{run.run} has landed", hint=f"run `fleet merge {run.run}` to merge its result")
    if holder is not None and not requests:
        message, hint = locked_message(run.run, holder)
        raise UsageError(message, hint=hint)
    for request in requests:
        common.check_request(run.state, request)
    return requests
