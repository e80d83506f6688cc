"""Verbs about plans: fleet plans show, check, diff, graph. No model is needed for any of them, and nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import shelf
from fleet.cli.common import HERE, AsJson, Repo, configuration, show, show_json
from fleet.cli.sources import Sets, meant, settings
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.epic import Brought

Given = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file, a name of the library, or a run.")]
Other = Annotated[str, typer.Argument(metavar="PLAN", help="The plan it is compared with.")]


def register(app: typer.Typer) -> None:
    plans = typer.Typer(no_args_is_help=True, help="Plans: look at them, check, compare, draw, edit and keep them.")
    for name, verb in (("show", show_plan), ("check", check), ("diff", diff), ("graph", graph)):
        plans.command(name=name)(verb)
    shelf.register(plans)
    app.add_typer(plans, name="plans")


def _brought(given: str, sets: list[str] | None, repo: Path) -> Brought:
    """The plan that is meant; of a run as it stands now, without what was split or dropped."""
    from fleet.app import Fleet
    from fleet.cli.sources import brought
    from fleet.core.standing import gone
    from fleet.environment import current
    from fleet.epic import Brought

    found = meant(given, repo)
    if isinstance(found, Path):
        return brought(Fleet(configuration(repo), current()), str(found), sets, repo)
    if sets:
        raise UsageError(f"{given} is a run: the values of its plan were filled in when it began")
    state = found.state()
    left = tuple(subtask for subtask in state.plan.subtasks if subtask.id not in gone(state))
    return Brought(state.plan.model_copy(update={"subtasks": left}), state.values, state.rollback)


def _noticed(brought: Brought, repo: Path) -> tuple[str, ...]:
    from fleet.app import Fleet
    from fleet.environment import current

    return (*Fleet(configuration(repo), current()).grade(brought.plan).all, *brought.notes)


def show_plan(plan: Given, sets: Sets = None, repo: Repo = HERE, as_json: AsJson = False) -> None:
    """A plan with what is noticed of it, its risk, time and cost.

    With --json the plan itself, its values filled in.

    \b
    Examples:
      fleet plans show plan.toml
      fleet plans show deploy --set version=v2.1.4
      fleet plans show RUN --json > plan.json
    """
    from dashboards.reviewing import estimate_lines, value_lines
    from dashboards.words import plan_lines
    from fleet.epic import dump_plan

    found = _brought(plan, sets, repo)
    if as_json:
        typer.echo(dump_plan(found.plan, toml=False), nl=False)
    else:
        about = [*estimate_lines(found.plan), *value_lines(found.values)]
        show([*plan_lines(found.plan, _noticed(found, repo)), *about])


def check(plan: Given, sets: Sets = None, repo: Repo = HERE, as_json: AsJson = False) -> None:
    """Whether a plan can run here; exit code 2 where it can't, with every reason.

    \b
    Examples:
      fleet plans check plan.toml
      fleet plans check deploy --set version=v2.1.4 --json
    """
    from dashboards.words import noticed_lines

    try:
        found = _brought(plan, sets, repo)
    except UsageError as error:
        if as_json:
            show_json({"ok": False, "error": str(error)})
        raise
    noticed = _noticed(found, repo)
    if as_json:
        show_json({"ok": True, "warnings": list(noticed), "values": dict(found.values)})
    else:
        many = f"{len(noticed)} warning{'s' * (len(noticed) != 1)}"
        show([f"{plan} holds together, with {many}", *noticed_lines(noticed)])


def diff(old: Given, new: Other, sets: Sets = None, repo: Repo = HERE, as_json: AsJson = False) -> None:
    """What changed from one plan to another.

    Each takes of --set what it declares.

    \b
    Examples:
      fleet plans diff plan.toml better.toml
      fleet plans diff deploy RUN --set version=v2.1.4
    """
    from dashboards.safe import safe
    from fleet.core.diff import plan_diff

    before, after = (_brought(given, theirs, repo) for given, theirs in _shared((old, new), sets, repo))
    changes = plan_diff(before.plan, after.plan)
    if as_json:
        show_json(list(changes))
    else:
        show([safe(change, limit=300) for change in changes] or ["the plans are the same"])


def _shared(plans: Sequence[str], sets: list[str] | None, repo: Path) -> list[tuple[str, list[str]]]:
    """Each plan with what was set of it."""
    from fleet.core.nearest import did_you_mean
    from fleet.core.parameters import declared
    from fleet.epic import read_data

    given = settings(sets)
    theirs = {}
    for plan in plans:
        found = meant(plan, repo)
        names = declared(read_data(found)) if isinstance(found, Path) and given else {}
        theirs[plan] = {} if isinstance(names, tuple) else names
    known = {name for names in theirs.values() for name in names}
    for name in given:
        if name not in known:
            raise UsageError(f"--set {name}: neither plan has such a parameter{did_you_mean(name, known)}")
    return [(plan, [f"{name}={value}" for name, value in given.items() if name in theirs[plan]]) for plan in plans]


def graph(
    plan: Given,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Draw it here: .mmd (Mermaid) or .svg.")] = None,
    sets: Sets = None,
    repo: Repo = HERE,
) -> None:
    """What depends on what: in the terminal, or as a picture.

    \b
    Examples:
      fleet plans graph plan.toml
      fleet plans graph deploy --set version=v2.1.4 -o plan.svg
    """
    from dashboards.plandrawing import svg
    from dashboards.plangraph import graph_lines, mermaid

    found = _brought(plan, sets, repo).plan
    if output is None:
        show(graph_lines(found))
        return
    draw = {".mmd": mermaid, ".svg": svg}.get(output.suffix)
    if draw is None:
        raise UsageError(f"{output}: a graph is written as .mmd (Mermaid) or .svg")
    try:
        output.write_text(draw(found), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}") from error
