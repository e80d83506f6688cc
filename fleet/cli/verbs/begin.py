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
    Clock,
    ConfigFile,
    Force,
    Limits,
    Repo,
    Review,
    RunArgument,
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
# The verb that shows and changes the limits of a run. A change is a fact of its journal.


Minutes = Annotated[
    float | None,
    typer.Option("--minutes", metavar="MINUTES", help="Maximum minutes at work; no call is made after that."),
]
Tokens = Annotated[
    int | None, typer.Option("--tokens", metavar="N", help="Maximum tokens; no call is made that exceeds it.")
]
Attempts = Annotated[int | None, typer.Option("--attempts", metavar="N", help="Maximum attempts; no other is started.")]
NotBetween = Annotated[
    str | None,
    typer.Option("--not-between", metavar="HOURS", help="Hours in which nothing begins, local time: 22:00-07:00."),
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
        typer.Option("--until", metavar="TIME", help="--minutes up to this time: 18:30, or 2026-11-02T18:30."),
    ] = None,
    tokens: Tokens = None,
    attempts: Attempts = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show or change the limits of a run.

    Without an option it shows them. A change applies at once to a run at work, and to another one when it is resumed.

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
        raise UsageError("--minutes and --until set the same limit", hint="use one of them")
    folder = common.run_to_change(run, named, repo, yes=yes)
    state, now = folder.state(), time.time()
    if until is not None:
        if not folder.alive:
            raise UsageError(
                f"no process runs {folder.run}, so --until can't be turned into minutes",
                hint="use --minutes, or resume it first",
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
    """From now to a time of this day or the next one, or to a moment."""
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
        raise UsageError(f"--until {text!r} is not a time", hint="write it like 18:30, or 2026-11-02T18:30") from error
    if (seconds := at.timestamp() - now) <= 0:
        raise UsageError(f"--until {text} is over", hint="`fleet cancel` or `fleet pause` stop the run now")
    return seconds


# ---- begin -----------------------------------------------------------------------------------------------------------


Epic = Annotated[
    str | None,
    typer.Argument(metavar="EPIC", help="The goal: text, a file, - (standard input), or an issue: gh:OWNER/REPO#12."),
]
Base = Annotated[
    str | None, typer.Option(metavar="COMMIT", help="Start from this commit, branch or tag; default: HEAD.")
]
RedBase = Annotated[bool, typer.Option("--allow-red-base", help="Continue even if the gate fails on the base.")]
OnlyEstimate = Annotated[
    bool, typer.Option("--estimate", help="Only print what comparable subtasks cost and took; start nothing.")
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
    """Let the planner write a plan; run nothing.

    \b
    Examples:
      fleet plan "Add a health endpoint"
      fleet plan epic.md -o plan.toml && $EDITOR plan.toml && fleet run --plan plan.toml
      git log -1 --format=%B | fleet plan -
    """
    if epic is None:
        raise UsageError('no epic given: fleet plan "Add a health endpoint", or a file, or - for standard input')
    if output is not None:
        check_plan_output(output, force=force)
    loaded = common.configuration(repo, config, flags(base_url=base_url))
    given = _read_epic(epic)
    order = Order(goal=given.goal, repository=repo, base=base, issue=given.issue)
    _write_plan(loaded, order, output, as_json=as_json)


def _write_plan(loaded: Loaded, order: Order, output: Path | None, *, as_json: bool) -> None:
    fleet = Fleet(loaded, current())
    show_note("asking the planner …")
    clock = Clock(quiet=as_json)
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
    keep = "-o plan.toml keeps it; fleet run --plan plan.toml runs it"
    show_note(f"\n{f'fleet run --plan {output}' if output else keep}")


def run(
    epic: Epic = None,
    plan_file: PlanFile = None,
    sets: Sets = None,
    repo: Repo = HERE,
    base: Base = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The run's name; its branch is fleet/NAME.")] = None,
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
    flat: Annotated[bool, typer.Option("--flat", help="One worker for the whole epic, no decomposition.")] = False,
    only_estimate: OnlyEstimate = False,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Only plan, as fleet plan does.")] = False,
    review: Review = None,
    yes: Yes = False,
    plain: Plain = False,
    no_tui: NoTui = False,
    web: Web = False,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Plan an epic and work on it until it has landed.

    The result is the branch fleet/RUN. Your checkout is not touched.

    --estimate runs nothing and calls no model: it prints the median and the range of what comparable subtasks cost and
    took that landed in past runs of this repository. With fewer than five, it prints no number.

    On a terminal a full screen opens; when you leave it (q), the run continues. Otherwise Ctrl-C lets agents finish, a
    second one stops at once; `fleet resume` continues.

    Exit codes: 0 all landed, 1 something did not, 2 usage, 3 environment, 4 budget, 130 interrupted.

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
    raise typer.Exit(exit_code(work_and_show(fleet, _created(fleet, asked, display, repo, base, name), display)))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What to work on, how far, and who approves the plan. Raises `UsageError` where options contradict each other."""

    epic: str | None
    plan_file: str | None
    sets: list[str] | None
    review: str | None
    yes: bool
    plan_only: bool
    only_estimate: bool

    def __post_init__(self) -> None:
        if (self.epic is None) == (self.plan_file is None):
            raise UsageError(
                'give either an epic (text, a file, or -) or --plan PLAN: fleet run "Add a health endpoint"'
            )
        if self.sets and self.plan_file is None:
            raise UsageError("--set sets a parameter of a plan", hint="name the plan with --plan")
        if self.plan_only and self.epic is None:
            raise UsageError("--plan-only writes a plan, --plan runs one", hint="use one of them")
        if self.plan_only and self.only_estimate:
            raise UsageError("--plan-only calls the planner, --estimate calls nothing", hint="use one of them")


def _created(
    fleet: Fleet, asked: _Asked, display: Display, repository: Path, base: str | None, name: str | None
) -> RunFolder:
    """The new run. Where an estimate or a plan is all that was asked for, it is shown and the program ends."""
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
    """The epic, if one was given; a feature reads it where it is an issue."""
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
# `fleet resume`: continues a run as it began, with other limits where a person gives them.


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
    """Resume a run that stopped.

    A run that was paused or interrupted, or that ended before everything landed. It keeps what it was started with:
    options, --config and FLEET_* variables; an option here replaces its own. Configuration files are read again.
    A rehearsal ends with its whole result, and shows it again if nothing is left to do.

    \b
    Examples:
      fleet resume                     the latest run of this repository
      fleet resume RUN --budget 40     a run that used up its budget
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
        message = "continues; it is running in another process"
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
    """What is requested of the run, checked. Raises `UsageError` if there is nothing to resume."""
    now, by = time.time(), user()
    requests: list[f.LimitsChanged | f.Unpaused] = [f.Unpaused(at=now, by=by)] if run.figures.is_paused else []
    if any(value is not None for value in limits.values()):
        if holder is not None:
            options = "--workers N, --budget USD, --minutes, --tokens or --attempts"
            raise UsageError(
                f"{run.run} is running, so there is nothing to resume",
                hint=f"`fleet limits {run.run}` with {options}",
            )
        requests.append(f.LimitsChanged(at=now, by=by, **limits))
    if holder is None and run.ending is not None and run.ending.is_good and not run.figures.rehearsal:
        raise UsageError(f"{run.run} has landed", hint=f"take its result with `fleet merge {run.run}`")
    if holder is not None and not requests:
        raise UsageError(locked_message(run.run, holder))
    for request in requests:
        common.check_request(run.state, request)
    return requests
