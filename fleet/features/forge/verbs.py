"""The verbs of pull requests: `tend` addresses CI failures and review comments, `pr` opens or updates drafts."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from dashboards.text.formats import counted, money
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, BaseUrl, ConfigFile, Repo, RunArgument, RunName, Sandbox, Yes, flags
from fleet.cli.display import work_and_follow
from fleet.cli.verbosity import show_note
from fleet.config.environment import current
from fleet.core.base.forges import ForgeKind
from fleet.errors import UsageError
from fleet.features.forge.forge import PREFIXES
from fleet.features.forge.program import open_forge
from fleet.features.forge.pull_requests import PullRequests, Wanted
from fleet.features.forge.pulls_view import PullsView, TendStatus, TendView
from fleet.features.forge.settings import Tend
from fleet.features.forge.tended_branch import PullBranch, find_opened, find_take
from fleet.features.forge.tending import RecordFile, Tending, watch
from worktrees.store.store import open_store
from worktrees.target.publish import remote_of
from worktrees.target.target import inspect

EXITS: dict[TendStatus, int] = {"gave_up": 1, "interrupted": 130}
SAYS: dict[TendStatus, str] = {
    "working": "finished a round, checking for more work",
    "waiting": "waiting for checks",
    "quiet": "no open work",
    "merged": "merged",
    "closed": "closed",
    "stopped": "stopped",
    "gave_up": "gave up",
    "interrupted": "interrupted (run the same command to continue)",
}


def tend(
    pull: Annotated[
        str | None,
        typer.Argument(
            metavar="PR",
            help="A pull request opened by fleet: its number, URL or run (default: that of the latest run).",
        ),
    ] = None,
    repo: Repo = HERE,
    once: Annotated[
        bool, typer.Option("--once", help="Check once, run at most one round, then exit. For timers.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="N", min=1, help="Maximum number of rounds in total (default: tend.rounds)."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", metavar="USD", min=0.01, help="Maximum cost of all rounds in USD (default: tend.dollars)."
        ),
    ] = None,
    base_url: BaseUrl = None,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Address CI failures and review comments on a pull request.

    Watches a pull request that fleet opened. Each open review thread and each failed check becomes a subtask of a run
    on top of the branch. fleet pushes the landed commits without force and replies once to each thread. It only follows
    comments from users with push access and from the accounts in tend.authors.

    It stops when the pull request is merged, closed or labeled fleet:stop, when a user with push access comments
    /fleet stop, or when its rounds or its budget are used up. You can stop it at any time and run it again.

    Exit codes: 0 finished for now, 1 gave up, 2 usage error, 3 environment error, 130 interrupted.

    \b
    Examples:
      fleet tend                    the pull request of the latest run
      fleet tend 12 --once
      fleet tend https://github.com/OWNER/REPO/pull/12 --rounds 8 --budget 20
    """
    given = flags(sandbox=sandbox, base_url=base_url) | {"tend.rounds": rounds, "tend.dollars": budget}
    fleet = Fleet(common.configuration(repo, config, given), current())
    view = common.run_async(lambda: _tend(fleet, pull, repo, once=once, as_json=as_json))
    common.show_view(view, _lines, as_json=as_json)
    raise typer.Exit(EXITS.get(view.status, 0))


async def _tend(fleet: Fleet, wanted: str | None, repo: Path, *, once: bool, as_json: bool) -> TendView:
    take = find_take()
    target, environ, settings = await inspect(repo), current(), fleet.config.of(Tend)
    opened = await find_opened(wanted, target, fleet.state_dir, environ)
    file = RecordFile(opened.folder.path / "tending", opened.pull.number)
    async with AsyncExitStack() as stack:
        held = (await stack.enter_async_context(file.held()),)
        store = await open_store(fleet.state_dir, target, target.base)
        stack.push_async_callback(store.close)
        remote = await remote_of(target, store.git, opened.remote, environ)
        number, run = opened.pull.number, opened.folder.run
        tending = Tending(
            fleet,
            open_forge(opened.place, environ, held),
            PullBranch(target, store, remote.holding(held), opened.pull.head_branch, run, number, take),
            file,
            lambda folder: work_and_follow(fleet, folder, as_json=as_json),
            settings,
            f"fleet tend {number} --rounds {settings.rounds * 2} --budget {settings.dollars * 2:g}",
        )
        if once:
            return await tending.step()
        return await watch(
            tending.step,
            poll_s=settings.poll_s,
            report=lambda view: show_note(f"{safe(view.pull)}: {_status(view)}"),
            note=show_note,
        )


def _status(view: TendView) -> str:
    return SAYS[view.status] + (f": {safe(view.why)}" if view.why else "")


def _lines(view: TendView) -> Iterator[str]:
    yield f"{safe(view.pull)}  {_status(view)}"
    yield f"  {safe(view.url)}"
    for each in view.rounds:
        what = [counted(each.threads, "thread")] if each.threads else []
        what += [counted(len(each.checks), "failed check")] if each.checks else []
        nothing = safe(each.why) or ("no changes to push" if each.is_done else "running")
        end = f"pushed {each.pushed[:12]}" if each.pushed else nothing
        yield f"  round {each.number}  {' and '.join(what)}: {end}  (fleet status {each.run})"
    if view.threads or view.failed:
        failed = ", ".join(map(safe, view.failed))
        yield f"  {counted(view.threads, 'thread')} waiting" + (f"; failed: {failed}" if failed else "")
    if view.rounds:
        yield f"  {money(view.cost_dollars)} in {counted(len(view.rounds), 'round')}"


# ---- pull ------------------------------------------------------------------------------------------------------------
# `fleet pr`: open a draft pull request with a run's result.


DONE = {
    "opened": "opened as a draft",
    "updated": "updated",
    "unchanged": "already up to date",
    "merged": "already merged",
    "to open": "would be opened as a draft",
    "to update": "would be updated",
}


def pr(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="BRANCH",
            help="The target branch (default: the branch the run started from, or the default branch).",
        ),
    ] = None,
    remote: Annotated[
        str | None, typer.Option("--remote", metavar="NAME", help="The git remote to push to (default: origin).")
    ] = None,
    forge: Annotated[
        str | None,
        typer.Option(
            "--forge",
            metavar="|".join(PREFIXES),
            help="The forge of the remote, if its host name does not show it.",
        ),
    ] = None,
    stack: Annotated[
        bool,
        typer.Option(
            "--stack", help="Open a stack: one pull request per area of the plan, each based on the previous one."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the descriptions and the commands, then exit.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Open a draft pull request with a run's result.

    Pushes fleet/RUN to a remote and opens a draft on GitHub (with gh) or GitLab (with glab). The description lists the
    landed changes, their checks, points to review, the cost, and how to undo the run. If you run it again after more
    has landed, it pushes the new commits and updates the generated part of the description.

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
    common.show_view(common.run_async(pulls.propose), _pull_lines, as_json=as_json)


def _kind(forge: str | None) -> ForgeKind | None:
    if forge is not None and forge not in PREFIXES:
        raise UsageError(f"invalid value for --forge: {forge!r}", hint=f"use {' or '.join(PREFIXES)}")
    return PREFIXES[forge] if forge is not None else None


def _pull_lines(view: PullsView) -> Iterator[str]:
    for pull in view.pulls:
        commits = counted(pull.commits, "commit")
        yield f"{pull.url or pull.branch}: {DONE[pull.done]} ({commits} from {pull.branch} into {pull.into})"
    if not view.dry_run:
        return
    for pull in view.pulls:
        yield from ("", f"title: {pull.title}", "", *pull.body.splitlines())
    yield from ("", "Commands not run:", *(f"  {command}" for command in view.commands))
