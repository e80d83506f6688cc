"""The verb that rehearses a run on the history of a repository, with or without a model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fleet.app.fleet import Fleet, Order
from fleet.app.input_files import dump_plan
from fleet.cli import common
from fleet.cli.common import (
    EXIT,
    HERE,
    AsJson,
    BaseUrl,
    Budget,
    ConfigFile,
    Force,
    Repo,
    Sandbox,
    Workers,
    Yes,
    flags,
    limits_of,
)
from fleet.cli.plan_editor import PlanFile, check_plan_output, load_plan_argument
from fleet.config.environment import current
from fleet.core.facts.facts import Rehearsal
from fleet.errors import UsageError
from fleet.features.rehearse import carry_out as live
from fleet.features.rehearse.rehearsal_text import plan_line, rehearsal_lines
from fleet.features.rehearse.rehearsing import (
    HistoryLine,
    for_rehearsal,
    read_line,
    rehearsal_policy,
    with_given_plan,
    write_advice,
)
from fleet.features.rehearse.replay_plan import REPLAYER
from fleet.runs.run_folder import RunFolder, root_of

MOST = 500

LAST, LAST_FOR_REAL = 100, 20
Last = Annotated[
    int | None,
    typer.Option(
        "--last",
        metavar="N",
        min=1,
        max=MOST,
        help=f"The number of commits, along first parents (default: {LAST}, or {LAST_FOR_REAL} with --for-real).",
    ),
]
ForReal = Annotated[
    bool,
    typer.Option(
        "--for-real", help="Let the planner and workers redo the commits from their messages. Calls paid models."
    ),
]
Worker = Annotated[str, typer.Option("--worker", metavar="NAME", help="With --for-real: the worker for all commits.")]
Gate = Annotated[
    str | None,
    typer.Option(
        "--gate", metavar="COMMAND", help="Use this gate instead of checks.gate. An empty string disables it."
    ),
]
Tries = Annotated[
    int,
    typer.Option(
        "--tries", metavar="N", min=1, max=20, help="The number of gate runs on the newest commit, to find flaky tests."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this file: the plan, without replaying it."),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="The name of the rehearsal.")]
Write = Annotated[
    bool, typer.Option("--write", help="Write the recommended settings into fleet.toml, with their reasons.")
]
Branch = Annotated[bool, typer.Option("--branch", help="Keep the result as the branch fleet/RUN.")]


def rehearse(
    last: Last = None,
    for_real: ForReal = False,
    plan_file: PlanFile = None,
    output: Output = None,
    repo: Repo = HERE,
    name: Name = None,
    workers: Workers = None,
    worker: Worker = "coder",
    budget: Budget = None,
    base_url: BaseUrl = None,
    gate: Gate = None,
    tries: Tries = live.TRIES,
    write: Write = False,
    branch: Branch = False,
    force: Force = False,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Replay the repository's last commits as a run, without calling a model.

    Each commit becomes a subtask whose worker applies its patch. The setup command, the gate, the merge queue and the
    landing are real. The rehearsal shows whether the gate passes in the sandbox, how long it takes, whether it is
    flaky, how many workers this machine can run, and the recommended settings. It does not change the repository.

    With --for-real, the planner and the workers redo each commit from its message, on its parent. The tests of the
    original commit judge the result. This requires --budget and asks for confirmation first.

    Exit codes: 0 the final tree equals the history, or with --for-real all commits were judged; 1 it differs, or some
    were not judged; 2 usage error, 3 environment error, 4 budget used up, 130 interrupted.

    \b
    Examples:
      fleet rehearse                            the last 100 commits
      fleet rehearse --last 20 --gate "make test" --write
      fleet rehearse -o plan.toml && $EDITOR plan.toml && fleet rehearse --plan plan.toml
      fleet rehearse --for-real --last 10 --budget 5
    """
    options = flags(limits_of(workers=workers, budget=budget), sandbox=sandbox, gate=gate, base_url=base_url)
    loaded = common.configuration(repo, config, options)
    if for_real:
        _refuse({"--plan": plan_file, "-o": output, "--write": write, "--branch": branch}, "--for-real")
        redoing = live.Redoing(repo, last or LAST_FOR_REAL, worker, name, yes)
        raise typer.Exit(live.begin_and_show(Fleet(loaded, current()), redoing, as_json=as_json))
    _refuse({"--budget": budget, "--yes": yes, "--base-url": base_url}, "a rehearsal without --for-real")
    root = _root_to_write_to(repo) if write else None
    fleet = Fleet(for_rehearsal(loaded), current())
    line = _line(fleet, repo, plan_file, last=last or LAST)
    if output is not None:
        return _write_plan(line, output, force=force)
    folder = _create(fleet, repo, line, name or live.rehearsal_name(fleet, line.head), publishes=branch)
    view = live.rehearse(fleet, folder, tries=tries, quiet=as_json)
    if view is None:
        raise typer.Exit(EXIT[None])
    common.show_view(view, rehearsal_lines, as_json=as_json)
    if root is not None:
        typer.echo(write_advice(root / "fleet.toml", view, gate=fleet.config.checks.gate), err=as_json)
    raise typer.Exit(0 if view.succeeded else 1)


def _root_to_write_to(repo: Path) -> Path:
    if (root := root_of(repo)) is None:
        raise UsageError(
            f"--write requires a checkout: {repo.absolute()} is not in one", hint="use -C DIR to select a checkout"
        )
    return root


def _write_plan(line: HistoryLine, output: Path, *, force: bool) -> None:
    check_plan_output(output, force=force)
    common.write_file(output, dump_plan(line.plan, toml=output.suffix == ".toml"))
    typer.echo(f"wrote {output}: {plan_line(line.plan)}")


def _create(fleet: Fleet, repo: Path, line: HistoryLine, name: str, *, publishes: bool) -> RunFolder:
    order = Order(
        goal=line.plan.goal,
        repository=repo,
        base=line.base,
        name=name,
        plan=line.plan,
        rehearsal=Rehearsal(),
        publishes=publishes,
        policy=rehearsal_policy(fleet.wiring.policy, publishes=publishes),
    )
    return common.run_async(lambda: fleet.create(order))


def _line(fleet: Fleet, repo: Path, plan_file: str | None, *, last: int) -> HistoryLine:
    """Return the commits to replay, with the user's plan if there is one."""
    protected = fleet.config.checks.protected
    line = common.run_async(lambda: read_line(fleet.state_dir, repo, last=last, protected=protected))
    if plan_file is None:
        return line
    known = fleet.wiring.known
    known = replace(known, workers=(known.workers or frozenset()) | {REPLAYER})
    return with_given_plan(line, load_plan_argument(known, plan_file, None, repo).plan, plan_file)


def _refuse(options: Mapping[str, object], kind: str) -> None:
    """Raise `UsageError` if one of these options was given."""
    given = [option for option, value in options.items() if value]
    if given:
        raise UsageError(f"{' and '.join(given)} can't be used with {kind}", hint=f"omit {' and '.join(given)}")
