"""The verb that shows and changes the limits of a run. A change is a fact of its journal."""

import re
import time
from datetime import datetime, timedelta
from typing import Annotated

import typer

from dashboards.text.tables import limits_lines
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Repo, RunArgument, RunName, Yes
from fleet.cli.options import limits_of
from fleet.config.environment import user
from fleet.core.state.facts import LimitsChanged
from fleet.core.views.run_view import limits_view
from fleet.errors import UsageError
from fleet.runs.run_folder import RunFolder

Workers = Annotated[int | None, typer.Option("--workers", metavar="N", help="Maximum number of agents at once.")]
Budget = Annotated[
    float | None, typer.Option("--budget", metavar="USD", help="Maximum cost in USD; no call is made that exceeds it.")
]
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
