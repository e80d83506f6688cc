"""The verbs of `fleet plans`: show, check, diff, graph, list, save, edit. They never call a model or start a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dashboards.text.formats import counted
from dashboards.text.plan_review import (
    FORMATS,
    comparable_lines,
    estimate_lines,
    graph_lines,
    note_lines,
    plan_lines,
    value_lines,
)
from dashboards.text.safe import safe
from fleet.app.input_files import Entry, GivenPlan, dump_plan, find_rollback, read_data
from fleet.app.past_runs import read_evidence
from fleet.app.wiring import Wiring
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Force, Repo
from fleet.cli.plan_editor import (
    Sets,
    edit_file,
    edit_run,
    find_plan,
    load_plan_argument,
    parse_settings,
    plan_library,
    plan_names,
    read_template,
)
from fleet.cli.verb_table import VERBS
from fleet.cli.verbosity import show_note
from fleet.config.environment import current
from fleet.config.toml import read_text
from fleet.core.base.ids import suggestion
from fleet.core.plans.parameters import parameter_lines, read_parameters
from fleet.errors import UsageError
from fleet.read.costs import plan_estimates
from fleet.read.plan_views import (
    LibraryPlanView,
    PlanChangesView,
    PlanCheckView,
    SavedPlanView,
    graph_view,
    parameter_view,
    plan_diff,
    remaining_plan,
    saved_plan,
)
from fleet.runs.run_folder import RunFolder

PlanName = Annotated[
    str,
    typer.Argument(metavar="PLAN", help="A plan file, a plan in the library, or a run.", autocompletion=plan_names),
]


def show_plan(plan: PlanName, sets: Sets = None, repo: Repo = HERE, as_json: AsJson = False) -> None:
    """Show a plan with its warnings, risk, time and cost.

    With --json, prints the plan with its values filled in.

    \b
    Examples:
      fleet plans show plan.toml
      fleet plans show deploy --set version=v2.1.4
      fleet plans show RUN --json > plan.json
    """
    loaded = _load(plan, sets, repo)
    if as_json:
        typer.echo(dump_plan(loaded.plan, toml=False), nl=False)
    else:
        past = common.run_async(lambda: read_evidence(common.configuration(repo).config, repo))
        size = [
            *estimate_lines(loaded.plan),
            *comparable_lines(plan_estimates(loaded.plan.subtasks, past.estimates)),
            *value_lines(loaded.values),
        ]
        common.show([*plan_lines(loaded.plan, _warnings(loaded, repo)), *size])


def check(plan: PlanName, sets: Sets = None, repo: Repo = HERE, as_json: AsJson = False) -> None:
    """Check that a plan is valid.

    If it is not, prints every problem and exits with code 2.

    \b
    Examples:
      fleet plans check plan.toml
      fleet plans check deploy --set version=v2.1.4 --json
    """
    loaded = _load(plan, sets, repo)
    warnings = _warnings(loaded, repo)
    if as_json:
        common.show_json(PlanCheckView(ok=True, warnings=warnings, values=loaded.values))
    else:
        common.show([f"{plan} is valid, {counted(len(warnings), 'warning')}", *note_lines(warnings)])


def diff(
    old: PlanName,
    new: Annotated[str, typer.Argument(metavar="PLAN", help="The plan to compare with.", autocompletion=plan_names)],
    sets: Sets = None,
    repo: Repo = HERE,
    as_json: AsJson = False,
) -> None:
    """Show the differences between two plans.

    A --set value applies to each plan that declares the parameter.

    \b
    Examples:
      fleet plans diff plan.toml better.toml
      fleet plans diff deploy RUN --set version=v2.1.4
    """
    before, after = (_load(plan, plan_sets, repo) for plan, plan_sets in _sets_of_each((old, new), sets, repo))
    changes = plan_diff(before.plan, after.plan)
    if as_json:
        common.show_json(PlanChangesView(tuple(changes)))
    else:
        common.show([safe(change, limit=300) for change in changes] or ["the plans are the same"])


def graph(
    plan: PlanName,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file: .mmd (Mermaid) or .dot (Graphviz)."),
    ] = None,
    force: Force = False,
    sets: Sets = None,
    repo: Repo = HERE,
    as_json: AsJson = False,
) -> None:
    """Show the dependencies of a plan, or write a graph.

    \b
    Examples:
      fleet plans graph plan.toml
      fleet plans graph deploy --set version=v2.1.4 -o plan.mmd
    """
    loaded = _load(plan, sets, repo).plan
    if output is None:
        if as_json:
            common.show_json(graph_view(loaded))
        else:
            common.show(graph_lines(loaded))
        return
    draw = FORMATS.get(output.suffix)
    if draw is None:
        hint = "use a file name that ends in .mmd (Mermaid) or .dot (Graphviz)"
        if output.suffix == ".svg":
            hint = f"write plan.dot, then run: dot -Tsvg plan.dot -o {output.name}"
        raise UsageError(f"unknown graph format: {output}", hint=hint)
    common.check_output(output, force=force)
    common.write_file(output, draw(loaded))
    if as_json:
        common.show_json(graph_view(loaded, str(output)))


def list_plans(repo: Repo = HERE, as_json: AsJson = False) -> None:
    """List the saved plans and their parameters.

    The library contains the plans of this repository (.fleet/plans) and your own.

    \b
    Examples:
      fleet plans list
      fleet plans list --json
    """
    library = plan_library(repo)
    entries = list(library.entries())
    if as_json:
        common.show_json([_entry_view(entry) for entry in entries])
    elif entries:
        width = max(len(entry.name) for entry in entries)
        for entry in entries:
            title = f"can't be read: {entry.problem}" if entry.problem else entry.title
            typer.echo(f"{safe(entry.name):<{width}}  {entry.where:<10}  {safe(title, limit=140)}".rstrip())
            common.show(f"{'':<{width}}    {safe(line)}" for line in parameter_lines(dict(entry.parameters)))
    else:
        common.show(["no plans in", *(f"  {folder}" for folder in library.folders)])
        show_note("To save a plan: fleet plans save FILE NAME")


def save(
    plan: PlanName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the saved plan.")],
    user: Annotated[bool, typer.Option("--user", help="Save to your own library instead of the repository.")] = False,
    force: Force = False,
    sets: Sets = None,
    repo: Repo = HERE,
    as_json: AsJson = False,
) -> None:
    """Save a plan to the library.

    Saves a plan file unchanged, or the landed part of an ended run.

    \b
    Examples:
      fleet plans save plan.toml deploy
      fleet plans save RUN health-endpoint --user
    """
    source, notes = find_plan(plan, repo), list[str]()
    if isinstance(source, Path):
        saved = read_template(source, parse_settings(sets))
        text, suffix = read_text(source), source.suffix if source.suffix == ".toml" else ".json"
    else:
        _refuse_sets(plan, sets)
        landed = saved_plan(source.state(), name)
        if isinstance(landed, str):
            raise UsageError(landed)
        saved, notes = landed.plan, [f"left out {id_}: {why}" for id_, why in landed.left_out]
        text, suffix = dump_plan(saved, toml=True), ".toml"
    library = plan_library(repo)
    path = library.save(text, name, suffix, where="user" if user else "repository", force=force)
    if saved.rollback_plan and find_rollback(saved.rollback_plan, library.folders) is None:
        notes.append(f"its rollback plan {saved.rollback_plan} is not in the library. Save it too.")
    if as_json:
        common.show_json(SavedPlanView(str(path), name, tuple(notes)))
        return
    typer.echo(f"saved {path}. To run it: fleet run --plan {name}")
    for note in notes:
        typer.echo(f"  note: {safe(note, limit=300)}", err=True)


def edit(plan: PlanName, sets: Sets = None, repo: Repo = HERE, as_json: AsJson = False) -> None:
    """Edit a plan in $VISUAL or $EDITOR.

    The plan is saved only if it is valid. An edited plan of a run is submitted for approval.

    \b
    Examples:
      fleet plans edit deploy
      fleet plans edit plan.toml --set version=v2.1.4      check it with this value
      fleet plans edit RUN && fleet approve RUN
    """
    source = find_plan(plan, repo)
    if isinstance(source, Path):
        edit_file(source, parse_settings(sets), as_json=as_json)
    else:
        _refuse_sets(plan, sets)
        edit_run(source, as_json=as_json)


# ---- plans of files and runs ----------------------------------------------------------------------------------------


def _load(name: str, sets: list[str] | None, repo: Path) -> GivenPlan:
    """Load the plan of a file, the library or a run. A run's plan is without split and dropped subtasks."""
    source = find_plan(name, repo)
    if isinstance(source, Path):
        return load_plan_argument(Wiring(common.configuration(repo).config, current()).known, str(source), sets, repo)
    _refuse_sets(name, sets)
    state = source.state()
    return GivenPlan(remaining_plan(state), state.values, state.rollback)


def _refuse_sets(run: str, sets: list[str] | None) -> None:
    if sets:
        raise UsageError(
            f"--set can't be used with the run {run}", hint="its parameters were set when it started: omit --set"
        )


def _warnings(loaded: GivenPlan, repo: Path) -> tuple[str, ...]:
    return (*Wiring(common.configuration(repo).config, current()).grade(loaded.plan).all, *loaded.notes)


def _sets_of_each(plans: Sequence[str], sets: list[str] | None, repo: Path) -> list[tuple[str, list[str]]]:
    """Each plan with the settings of its parameters."""
    settings = parse_settings(sets)
    parameters = {plan: _parameters(find_plan(plan, repo)) if settings else set() for plan in plans}
    declared = set[str]().union(*parameters.values())
    for name in settings:
        if name not in declared:
            raise UsageError(f"--set {name}: neither plan declares this parameter", hint=suggestion(name, declared))
    return [(plan, [f"{name}={settings[name]}" for name in settings if name in parameters[plan]]) for plan in plans]


def _parameters(source: Path | RunFolder) -> set[str]:
    if not isinstance(source, Path):
        return set()
    parameters = read_parameters(read_data(source))
    return set() if isinstance(parameters, tuple) else set(parameters)


def _entry_view(entry: Entry) -> LibraryPlanView:
    parameters = tuple(parameter_view(name, parameter) for name, parameter in entry.parameters)
    return LibraryPlanView(entry.name, entry.title, entry.where, str(entry.path), parameters, entry.problem)


plans = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=VERBS["plans"].summary)
plans.command(name="show")(show_plan)
plans.command(name="check")(check)
plans.command(name="diff")(diff)
plans.command(name="graph")(graph)
plans.command(name="list")(list_plans)
plans.command(name="save")(save)
plans.command(name="edit")(edit)
