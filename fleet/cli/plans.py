"""Verbs about plan files: fleet plans show, check, diff, graph. No run and no model is needed for any of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.common import HERE, AsJson, Repo, configuration, show, show_json
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.core.plan import Plan

File = Annotated[Path, typer.Argument(help="A plan: .json or .toml.")]
Other = Annotated[Path, typer.Argument(help="The plan it is compared with.")]


def register(app: typer.Typer) -> None:
    plans = typer.Typer(no_args_is_help=True, help="Plan files: look at them, check, compare and draw them.")
    for name, verb in (("show", show_plan), ("check", check), ("diff", diff), ("graph", graph)):
        plans.command(name=name)(verb)
    app.add_typer(plans, name="plans")


def _load(path: Path, repo: Path) -> Plan:
    from fleet.app import Fleet
    from fleet.environment import current
    from fleet.epic import load_plan

    return load_plan(path, Fleet(configuration(repo), current()).known())


def show_plan(file: File, repo: Repo = HERE, as_json: AsJson = False) -> None:
    """A plan with what is noticed of it, its risk, time and cost.

    \b
    Examples:
      fleet plans show plan.toml
      fleet plans show plan.toml --json
    """
    from dashboards.reviewing import estimate_lines
    from dashboards.words import plan_lines
    from fleet.core.lint import grade_plan
    from fleet.epic import dump_plan

    plan = _load(file, repo)
    if as_json:
        typer.echo(dump_plan(plan, toml=False), nl=False)
    else:
        show([*plan_lines(plan, grade_plan(plan).all), *estimate_lines(plan)])


def check(file: File, repo: Repo = HERE, as_json: AsJson = False) -> None:
    """Whether a plan can run here; exit code 2 where it can't, with every reason.

    \b
    Examples:
      fleet plans check plan.toml
    """
    from dashboards.words import noticed_lines
    from fleet.core.lint import grade_plan

    noticed = grade_plan(_load(file, repo)).all
    if as_json:
        show_json({"ok": True, "warnings": list(noticed)})
    else:
        show([f"{file} holds together, with {len(noticed)} warnings", *noticed_lines(noticed)])


def diff(old: File, new: Other, repo: Repo = HERE, as_json: AsJson = False) -> None:
    """What changed from one plan to another.

    \b
    Examples:
      fleet plans diff plan.toml better.toml
    """
    from dashboards.safe import safe
    from fleet.core.diff import plan_diff

    changes = plan_diff(_load(old, repo), _load(new, repo))
    if as_json:
        show_json(list(changes))
    else:
        show([safe(change, limit=300) for change in changes] or ["the plans are the same"])


def graph(
    file: File,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Draw it here: .mmd (Mermaid) or .svg.")] = None,
    repo: Repo = HERE,
) -> None:
    """What depends on what: in the terminal, or as a picture.

    \b
    Examples:
      fleet plans graph plan.toml
      fleet plans graph plan.toml -o plan.svg
    """
    from dashboards.plangraph import graph_lines, mermaid, svg

    plan = _load(file, repo)
    if output is None:
        show(graph_lines(plan))
        return
    draw = {".mmd": mermaid, ".svg": svg}.get(output.suffix)
    if draw is None:
        raise UsageError(f"{output}: a graph is written as .mmd (Mermaid) or .svg")
    try:
        output.write_text(draw(plan), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}") from error
