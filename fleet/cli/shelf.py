"""Verbs that keep plans: fleet plans list, save, edit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import HERE, AsJson, Repo, show, show_json
from fleet.cli.sources import Sets, meant, settings, shelves
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.core.plan import Plan
    from fleet.folders import RunFolder
    from fleet.library import Entry

Kept = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file, a name of the library, or a run.")]


def register(plans: typer.Typer) -> None:
    plans.command(name="list")(list_plans)
    plans.command()(save)
    plans.command()(edit)


def list_plans(repo: Repo = HERE, as_json: AsJson = False) -> None:
    """The library: plans of this repository (.fleet/plans) and your own, with what each takes.

    \b
    Examples:
      fleet plans list
      fleet plans list --json
    """
    from dashboards.shelves import shelf_lines

    library = shelves(repo)
    entries = list(library.entries())
    if as_json:
        show_json([_as_data(entry) for entry in entries])
    elif entries:
        show(shelf_lines([_as_data(entry) for entry in entries]))
    else:
        show(["no plan is kept in", *(f"  {folder}" for folder in library.folders)])
        typer.echo("`fleet plans save FILE NAME` keeps one", err=True)


def _as_data(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "title": entry.title,
        "where": entry.where,
        "file": str(entry.path),
        "parameters": [
            {
                "name": name,
                "type": parameter.type,
                "required": parameter.default is None,
                "default": parameter.default,
                "choices": list(parameter.choices),
                "help": parameter.help,
            }
            for name, parameter in entry.parameters
        ],
        "problem": entry.problem,
    }


def save(
    plan: Kept,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    user: Annotated[bool, typer.Option("--user", help="Into your own library, not this repository's.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a plan of this name.")] = False,
    sets: Sets = None,
    repo: Repo = HERE,
) -> None:
    """Keep a plan in the library: a file as it stands, or what of a run that is over worked.

    \b
    Examples:
      fleet plans save plan.toml deploy
      fleet plans save RUN health-endpoint --user
    """
    from dashboards.safe import safe
    from fleet.epic import find_rollback

    found = meant(plan, repo)
    if isinstance(found, Path):
        text, suffix, kept = _document(found, sets)
        left: list[str] = []
    else:
        if sets:
            raise UsageError(f"{plan} is a run: the values of its plan were filled in when it began")
        text, kept, left = _of_run(found, name)
        suffix = ".toml"
    library = shelves(repo)
    path = library.save(text, name, suffix, where="user" if user else "repository", force=force)
    typer.echo(f"saved {path}: fleet run --plan {name}")
    if kept.rollback_plan and find_rollback(kept.rollback_plan, library.folders) is None:
        left.append(f"its rollback plan {kept.rollback_plan} is not in the library; keep that, too")
    for line in left:
        typer.echo(f"  note: {safe(line, limit=300)}", err=True)


def _document(path: Path, sets: list[str] | None) -> tuple[str, str, Plan]:
    """A plan file as it stands, comments and all; looked at with stand-ins for what has to be set."""
    from fleet.cli.edit import read_template
    from fleet.toml import read_text

    plan = read_template(path, settings(sets))
    return read_text(path), path.suffix if path.suffix == ".toml" else ".json", plan


def _of_run(folder: RunFolder, name: str) -> tuple[str, Plan, list[str]]:
    from fleet.core.keep import kept
    from fleet.epic import dump_plan

    made = kept(folder.state(), name)
    if isinstance(made, str):
        raise UsageError(made)
    return dump_plan(made.plan, toml=True), made.plan, [f"left out {id_}: {why}" for id_, why in made.left_out]


def edit(plan: Kept, sets: Sets = None, repo: Repo = HERE) -> None:
    """Edit a plan in $VISUAL or $EDITOR.

    What comes back is checked, and nothing changes before it holds together. Of a run that waits for review it is
    handed in as the plan to be approved.

    \b
    Examples:
      fleet plans edit deploy
      fleet plans edit plan.toml --set version=v2.1.4      values to check it with
      fleet plans edit RUN && fleet approve RUN
    """
    from fleet.cli.edit import edit_file, edit_run, has_terminal

    found = meant(plan, repo)
    if isinstance(found, Path):
        if not has_terminal():
            raise UsageError(
                f"an editor needs a terminal; change {found} some other way, then: fleet plans check {plan}"
            )
        edit_file(found, settings(sets))
        return
    if sets:
        raise UsageError(f"{plan} is a run: the values of its plan were filled in when it began")
    if not has_terminal():
        raise UsageError(
            f"an editor needs a terminal; write the plan with `fleet plans show fleet/{found.run} --json > plan.json`, "
            f"change it, and hand it in with `fleet approve {found.run} --plan plan.json`"
        )
    edit_run(found)
