"""`fleet pr`: proposes the result of a run as a draft pull request."""

from collections.abc import Iterator
from typing import Annotated

import typer

from dashboards.text.formats import counted
from fleet.app.forges.pull_requests import PullRequests, Wanted
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Repo, RunArgument, RunName, Yes
from fleet.config.environment import current
from fleet.core.views.pulls_view import PullsView
from fleet.errors import UsageError
from fleet.forge.place import PREFIXES, Kind

DONE = {
    "opened": "opened as a draft",
    "updated": "its text is up to date now",
    "unchanged": "nothing to change",
    "merged": "merged already",
    "to open": "would be opened as a draft",
    "to update": "its text would be replaced",
}


def pr(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    into: Annotated[
        str | None,
        typer.Option(
            "--into", metavar="BRANCH", help="Where it should go; default: where the run began, or the default branch."
        ),
    ] = None,
    remote: Annotated[
        str | None, typer.Option("--remote", metavar="NAME", help="The git remote to push to; default: origin.")
    ] = None,
    forge: Annotated[
        str | None,
        typer.Option("--forge", metavar="gh|gl", help="What the remote's host runs, where its name does not say it."),
    ] = None,
    stack: Annotated[
        bool, typer.Option("--stack", help="A pull request for each area of the plan, each on the one before.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print texts and commands; push and open nothing.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Propose the result of a run as a draft pull request.

    Pushes fleet/RUN to a remote, and opens a draft on GitHub (with gh) or GitLab (with glab): what landed, how it was
    proven, what to look at, what it cost, and how to undo it. Repeat it after more has landed: the branch moves
    forward, and the text is replaced; what people wrote above or below it stays. There is never a second one.

    \b
    Examples:
      fleet pr --dry-run
      fleet pr RUN --into develop
      fleet pr RUN --stack
      fleet pr RUN --json | jq -r '.pulls[].url'
    """
    folder = common.run_to_change(run, named, repo, yes=yes)
    wanted = Wanted(into=into, remote=remote, kind=_kind(forge), stack=stack, dry_run=dry_run)
    pulls = PullRequests(folder, common.state_dir(), current(), wanted, lambda line: typer.echo(line, err=True))
    common.show_view(common.run_async(pulls.propose), _lines, as_json=as_json)


def _kind(forge: str | None) -> Kind | None:
    if forge is not None and forge not in PREFIXES:
        raise UsageError(f"--forge {forge}: use gh or gl")
    return PREFIXES[forge] if forge is not None else None


def _lines(view: PullsView) -> Iterator[str]:
    for pull in view.pulls:
        commits = counted(pull.commits, "commit")
        yield f"{pull.url or pull.branch}: {DONE[pull.done]}; {commits}, from {pull.branch} into {pull.into}"
    if not view.dry_run:
        return
    for pull in view.pulls:
        yield from ("", f"title: {pull.title}", "", *pull.body.splitlines())
    yield from ("", "It would run:", *(f"  {command}" for command in view.commands))
