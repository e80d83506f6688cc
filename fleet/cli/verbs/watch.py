"""The verb that watches a run, in the terminal UI or as lines for screen readers, pipes and logs."""

import sys
import time
from typing import Annotated

import anyio
import typer

from dashboards.state_history import RunReplay
from dashboards.text.event_text import event_lines
from dashboards.text.summary import summary_lines
from dashboards.text.tables import status_lines
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Repo, RunArgument, RunName
from fleet.cli.display import Plain, has_full_screen, open_full_screen
from fleet.errors import UsageError
from fleet.read.follow import RunFollower, Step
from fleet.read.run import RunSnapshot
from fleet.runs.journal_feed import JournalFeed
from fleet.runs.run_folder import RunFolder

TICK_S = 0.25


def watch(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    plain: Plain = False,
    replay: Annotated[bool, typer.Option("--replay", help="Replay the run from its start.")] = False,
    speed: Annotated[
        float, typer.Option(metavar="N", help="Speed of the replay. 10 is ten times as fast as the run.")
    ] = 1.0,
    light: Annotated[bool, typer.Option("--light", help="Start with light colors. Press t to change them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a run in the terminal UI.

    The run can be live, finished or crashed. Press q to leave the screen, and ? to show all keys. Leaving does not stop
    the run. In a pipe, or with --plain, it prints one line per event until the run ends. With --json, it prints each
    fact as one line of JSON.

    \b
    Examples:
      fleet watch                          the latest run in this repository
      fleet watch RUN --replay --speed 10  replay a finished run
      fleet watch RUN --plain              print events as lines
    """
    if speed <= 0:
        raise UsageError(
            f"--speed must be greater than 0, not {speed:g}", hint="use --speed 10 to play the run ten times as fast"
        )
    folder = common.run_to_read(run, named, repo)
    replay_speed = speed if replay else None
    if plain or as_json or not has_full_screen():
        common.run_async(lambda: _print_events(folder, speed=replay_speed, as_json=as_json))
    else:
        open_full_screen(folder, speed=replay_speed, light=light)


async def _print_events(folder: RunFolder, *, speed: float | None, as_json: bool) -> None:
    """Print all facts, and new ones as they arrive, until the run ends or its engine stops."""
    with JournalFeed(folder) as feed:
        replay = RunReplay(feed, time.time, speed) if speed is not None else None
        run = RunFollower(replay or feed, time.time, take=_print_json if as_json else _print_event)
        while True:
            run.look()  # before reading, so that everything written until then is printed
            run.catch_up()
            sys.stdout.flush()
            if not run.alive or (replay is None and run.is_over):
                break
            await anyio.sleep(TICK_S)
    if run.state is not None and not as_json:
        snapshot = RunSnapshot(run.state, time.time(), alive=False)
        closing = summary_lines(snapshot) if snapshot.ending is not None else status_lines(snapshot.status)
        common.show(["", *closing])


def _print_json(step: Step) -> None:
    sys.stdout.write(step.fact.model_dump_json() + "\n")


def _print_event(step: Step) -> None:
    common.show(event_lines(step.run, step.fact))
