"""`fleet merge`: merges the result of a run into the user's branch."""

from collections.abc import Iterator
from typing import Annotated

import typer

from dashboards.text.formats import counted, money, untested
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, BaseUrl, ConfigFile, Repo, RunArgument, RunName, Sandbox, Yes, flags
from fleet.cli.display import work_and_follow
from fleet.cli.verbosity import show_note
from fleet.config.environment import current
from fleet.features.merge.merge_result import ConflictPolicy, ResultMerge
from fleet.read.base_view import MergeView
from fleet.runs.run_folder import RunFolder, find_run


def merge(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="BRANCH", help="The branch to merge into (default: the current branch)."),
    ] = None,
    no_resolve: Annotated[
        bool, typer.Option("--no-resolve", help="Only report conflicts. Don't let a model resolve them.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="USD",
            min=0.01,
            help="Budget for resolving conflicts, in USD (default: the rest of the run's budget).",
        ),
    ] = None,
    base_url: BaseUrl = None,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Merge a run's result into your branch.

    If your branch has not diverged from the run, it is fast-forwarded, together with its checkout if that has no
    uncommitted changes. Otherwise the commits are landed again on top of your branch: the gate and their checks run for
    each commit, and a worker redoes commits that conflict or fail, within the budget. Your branch moves only if all
    commits land. If not, the message shows the reason and the next step.

    Exit codes: 0 merged, 1 a commit conflicts or fails, 2 usage error, 3 environment error, 130 interrupted. To
    continue after an interruption, run the same command again.

    \b
    Examples:
      fleet merge                      the latest run, into the current branch
      fleet merge RUN --into main
      fleet merge --no-resolve         only report conflicts, without any cost
      fleet merge --budget 2           spend at most $2 on conflicts
    """
    folder = _with_result(common.run_to_change(run, named, repo, yes=yes))
    given = flags(sandbox=sandbox, base_url=base_url)
    state = folder.state()

    def fleet(*, secrets: bool) -> Fleet:
        """Open the run's configuration. Secrets are only needed for model calls."""
        return Fleet(common.configuration_of(state, config, given, secrets=secrets), current())

    taking = ResultMerge(
        fleet(secrets=False),
        folder,
        work=lambda relanding: work_and_follow(fleet(secrets=not no_resolve), relanding, as_json=as_json),
        resolving=ConflictPolicy(wanted=not no_resolve, dollars=budget),
        say=show_note,
    )
    common.show_view(common.run_async(lambda: taking.take(repo, into)), _merge_lines, as_json=as_json)


def _with_result(folder: RunFolder) -> RunFolder:
    """Return the run, or for a relanding the run whose result it lands."""
    relanding = folder.state().relanding
    return folder if relanding is None else find_run(common.state_dir(), relanding.run)


def _merge_lines(view: MergeView) -> Iterator[str]:
    at = f"{view.branch} is at {view.commit[:12]}"
    if view.how == "up to date":
        yield f"{at}, which already contains all commits of {view.run}"
        return
    tested = ", each tested on top of your branch" if view.how == "relanded" else ""
    less = untested(view.commits, view.commits - view.untested)
    landed = f"{counted(view.commits, 'commit')} of {view.run}"
    yield f"{view.branch} is now at {view.commit[:12]}, with {landed}{tested}{less}"
    for redone in view.redone:
        why = f": {safe(redone.why)}" if redone.why else ""
        yield f"changed by a resolver, please review: git show {redone.commit[:12]} ({redone.subtask}{why})"
    if view.redone and view.cost_dollars:
        yield f"resolving cost {money(view.cost_dollars)}. For details, run `fleet report {view.relanding}`"
