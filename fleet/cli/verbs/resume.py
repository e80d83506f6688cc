"""`fleet resume`: continues a run as it began, with other limits where a person gives them."""

import time

import typer

from dashboards.text.rehearsal_text import rehearsal_lines
from fleet.app.fleet import Fleet, open_workers, withdraw_cancel
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, BaseUrl, ConfigFile, Repo, RunArgument, RunName, Sandbox, SetupNetwork, Yes
from fleet.cli.live import past_tasks
from fleet.cli.live.display import Detach, Display, NoTui, Plain, Web, work_and_show
from fleet.cli.live.pages import start_pages
from fleet.cli.options import Limits, flags, limits_of
from fleet.cli.verbs.begin import EXIT, Attempts, Budget, Minutes, NotBetween, RedBase, Tokens, Workers, exit_code
from fleet.config.environment import current, user
from fleet.core.plans.plan import PLANNER
from fleet.core.plans.replay import REPLAYER
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.errors import UsageError
from fleet.runs.journal import Holder, locked_message
from fleet.runs.run_folder import RunFolder


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
    requests = _requests(state, holder, {**limits, "allow_red_base": allow_red_base or None})
    how: dict[str, str | bool | None] = {"sandbox": sandbox, "setup_network": setup_network, "not_between": not_between}
    given = flags(None, base_url=base_url, metrics=metrics, otlp=otlp, **how)
    fleet = Fleet(common.configuration_of(state, config, given), current()).of_run(state)
    _check_workers(fleet, state)
    fleet.require_models_for(state)
    if holder is None:
        withdraw_cancel(folder)
    common.send_requests(folder, *requests)
    if holder is not None:
        message = "continues; it is running in another process"
        common.confirm_request(folder, requests[0].kind, message, as_json=as_json)
        return
    if state.rehearsal is not None and not detach:
        if web:
            start_pages(folder)
        is_changed = any(isinstance(request, f.LimitsChanged) for request in requests)
        raise typer.Exit(_rehearse(fleet, folder, state, changed=is_changed, as_json=as_json))
    display = Display(plain=plain, no_tui=no_tui, detach=detach, as_json=as_json, web=web)
    raise typer.Exit(exit_code(work_and_show(fleet, folder, display)))


def _requests(state: RunState, holder: Holder | None, limits: Limits) -> list[f.LimitsChanged | f.Unpaused]:
    """What is requested of the run, checked. Raises `UsageError` if there is nothing to resume."""
    now, by = time.time(), user()
    requests: list[f.LimitsChanged | f.Unpaused] = [f.Unpaused(at=now, by=by)] if state.paused else []
    if any(value is not None for value in limits.values()):
        if holder is not None:
            options = "--workers N, --budget USD, --minutes, --tokens or --attempts"
            raise UsageError(
                f"{state.run} is running, so there is nothing to resume",
                hint=f"`fleet limits {state.run}` with {options}",
            )
        requests.append(f.LimitsChanged(at=now, by=by, **limits))
    if holder is None and state.ending == "landed" and state.rehearsal is None:
        raise UsageError(f"{state.run} has landed", hint=f"take its result with `fleet merge {state.run}`")
    if holder is not None and not requests:
        raise UsageError(locked_message(state.run, holder))
    for request in requests:
        common.check_request(state, request)
    return requests


def _rehearse(fleet: Fleet, folder: RunFolder, state: RunState, *, changed: bool, as_json: bool) -> int:
    """Carry out what is left of a rehearsal, and show all of its result. Returns the exit code."""
    if state.for_real:
        reopen = changed or state.ending in {"cancelled", "aborted", "failed"}
        return past_tasks.redo_and_show(fleet, folder, reopen=reopen, as_json=as_json)
    view = past_tasks.rehearse(fleet, folder, quiet=as_json)
    if view is None:
        return EXIT[None]
    common.show_view(view, rehearsal_lines, as_json=as_json)
    return 0 if view.succeeded else 1


def _check_workers(fleet: Fleet, state: RunState) -> None:
    """Raise `UsageError` if unfinished subtasks name workers that are not configured here."""
    needed = open_workers(state) - {PLANNER, REPLAYER}
    missing = sorted(needed - (fleet.wiring.known.workers or needed))
    if missing:
        raise UsageError(
            f"{state.run} still needs the worker {', '.join(missing)}, which is not configured here; "
            f"if the run was started with --config FILE, resume it with: fleet resume {state.run} --config FILE"
        )
