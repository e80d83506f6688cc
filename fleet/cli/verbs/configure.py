"""Verbs about the configuration: config show, config get, explain-policy."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated

import typer

from dashboards.text.tables import policy_lines
from fleet.app.past_runs import read_evidence
from fleet.app.wiring import Wiring
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, ConfigFile, Repo, repository_of
from fleet.cli.verb_table import VERBS
from fleet.config.environment import current
from fleet.config.toml import dump_toml
from fleet.core.base.ids import is_slug, suggestion
from fleet.core.facts.facts import RungTally
from fleet.errors import FleetError, UsageError
from fleet.read.base_view import ConfigValueView
from fleet.read.policy_document import policy_view


def config_show(
    origin: Annotated[bool, typer.Option("--origin", help="Also print the origin of each value.")] = False,
    repo: Repo = HERE,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the configuration in effect.

    \b
    Examples:
      fleet config show --origin
      FLEET_RUN_WORKERS=100 fleet config show --json | jq .run
    """
    loaded = common.configuration(repo, config)
    data = loaded.config.model_dump(mode="json")
    if as_json:
        common.show_data({"config": data, "origin": loaded.origin} if origin else data)
    elif origin:
        width = max(map(len, loaded.origin))
        common.show(f"{key:<{width}}  {_shown(data, key)}  ({where})" for key, where in loaded.origin.items())
    else:
        typer.echo(dump_toml(loaded.config.model_dump(mode="json", exclude_none=True)), nl=False)


def _key_names(context: typer.Context) -> list[str]:
    """For completion. A table in a repository's fleet.toml may have any name."""
    with suppress(FleetError, OSError):
        return [key for key in common.configuration(repository_of(context)).origin if is_slug(key)]
    return []


def config_get(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="A key such as run.workers, or a table such as run.", autocompletion=_key_names
        ),
    ],
    repo: Repo = HERE,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the value of one key.

    Text is printed without quotes, a table as TOML and any other value as JSON.

    \b
    Examples:
      fleet config get run.workers
      fleet config get checks.gate --json | jq -r .origin
    """
    loaded = common.configuration(repo, config)
    data = loaded.config.model_dump(mode="json")
    known = (*_tables(data), *loaded.origin)
    if key not in known:
        raise UsageError(
            f"unknown key: {key!r}", hint=suggestion(key, known) or "run `fleet config show` to list all keys"
        )
    view = ConfigValueView(key, _value(data, key), loaded.origin.get(key, ""))
    common.show_view(view, _value_lines, as_json=as_json)


def _value_lines(view: ConfigValueView) -> Iterator[str]:
    match view.value:
        case str():
            yield view.value
        case dict():
            yield dump_toml(_without_null(view.value)).rstrip("\n")
        case _:
            yield json.dumps(view.value)


def _without_null(table: Mapping[str, object]) -> dict[str, object]:
    """A table without null values, which TOML does not have."""
    return {
        key: _without_null(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None
    }


def _tables(data: Mapping[str, object], above: str = "") -> Iterator[str]:
    for name, value in data.items():
        if isinstance(value, dict):
            yield (path := f"{above}{name}")
            yield from _tables(value, f"{path}.")


def explain_policy(repo: Repo = HERE, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show how each kind of failure is handled.

    Prints the ladder of remedies and the limits in effect. For workers with rungs, it also prints the cost of each rung
    per landed subtask in past runs of this repository, and the rung on which subtasks start.

    \b
    Examples:
      fleet explain-policy
      fleet explain-policy --json | jq -r '.ladder[] | select(.counts) | .kind'
    """
    loaded = common.configuration(repo, config)
    policy = Wiring(loaded.config, current()).policy
    tallies: tuple[RungTally, ...] = ()
    if policy.rungs:
        tallies = common.run_async(lambda: read_evidence(loaded.config, repo)).tallies
    common.show_view(policy_view(policy, tallies), policy_lines, as_json=as_json)


def _value(data: object, dotted: str) -> object:
    """The value at a dotted key. Quoted parts are names that contain dots."""
    value = data
    for part in re.findall(r'"[^"]*"|[^.]+', dotted):
        value = value.get(part.strip('"')) if isinstance(value, dict) else None
    return value


def _shown(data: object, dotted: str) -> str:
    text = str(_value(data, dotted))
    return text if len(text) <= (limit := 60) else f"{text[: limit - 1]}…"


config = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=VERBS["config"].summary)
config.command(name="show")(config_show)
config.command(name="get")(config_get)
