"""`fleet merge`: takes the result of a run into a branch of the user's."""

from typing import Annotated

import typer

from dashboards.text.formats import counted
from fleet.app.fleet import Fleet
from fleet.app.taking import Taken, Taking
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, ConfigFile, Repo, RunArgument, RunName, Sandbox, Yes
from fleet.config.environment import current
from fleet.core.views.dump import SCHEMA_VERSION


def merge(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    into: Annotated[
        str | None, typer.Option("--into", metavar="BRANCH", help="A branch of yours; default: the one you are on.")
    ] = None,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take a run's result into a branch of yours.

    The branch moves forward to the commits of the run, with its checkout if that has no changes. If the branch has
    moved on since the run began, the commits are put on top of it, and the gate and their criteria are run there, on
    each of them: if one does not fit or fails, the branch stays as it is.

    \b
    Examples:
      fleet merge                      the latest run, into the branch you are on
      fleet merge RUN --into main
    """
    folder = common.run_to_change(run, named, repo, yes=yes)
    flags = {"box.sandbox": sandbox or folder.state().sandbox}
    fleet = Fleet(common.configuration(repo, config, flags), current())
    taking = Taking(fleet, folder, say=lambda line: typer.echo(line, err=True))
    taken = common.run_async(lambda: taking.take(repo, into))
    if as_json:
        view = {"run": folder.run, "branch": taken.branch, "commit": taken.commit}
        common.show_json({"schema_version": SCHEMA_VERSION, **view, "commits": taken.commits, "how": taken.how})
    else:
        typer.echo(_message(folder.run, taken))


def _message(run: str, taken: Taken) -> str:
    at = f"{taken.branch} is at {taken.commit[:12]}"
    if taken.how == "nothing":
        return f"{at}; it has all commits of {run} already"
    tested = ", each tested on top of what it had" if taken.how == "landed again" else ""
    return f"{at} now, with {counted(taken.commits, 'commit')} of {run}{tested}"
