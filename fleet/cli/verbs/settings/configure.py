"""Verbs about the configuration: config show, explain-policy."""

import re
from typing import Annotated

import typer

from dashboards.text.tables import policy_lines
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, ConfigFile, Repo
from fleet.cli.root_help import VERBS
from fleet.config.schema import as_policy
from fleet.config.toml import dump_toml
from fleet.core.views.policy_document import policy_view


def config_show(
    origin: Annotated[bool, typer.Option("--origin", help="Also print where each value comes from.")] = False,
    repo: Repo = HERE,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the configuration that applies here.

    \b
    Examples:
      fleet config show --origin
      FLEET_RUN_WORKERS=100 fleet config show --json | jq .run
    """
    loaded = common.configuration(repo, config)
    data = loaded.config.model_dump(mode="json")
    if as_json:
        common.show_json({"config": data, "origin": loaded.origin} if origin else data)
    elif origin:
        width = max(map(len, loaded.origin))
        common.show(f"{key:<{width}}  {_value(data, key)}  ({where})" for key, where in loaded.origin.items())
    else:
        typer.echo(dump_toml(loaded.config.model_dump(mode="json", exclude_none=True)), nl=False)


def explain_policy(repo: Repo = HERE, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show how each kind of failure is handled.

    The ladder of remedies, with the limits that apply here.

    \b
    Examples:
      fleet explain-policy
      fleet explain-policy --json | jq -r '.ladder[] | select(.counts) | .kind'
    """
    policy = policy_view(as_policy(common.configuration(repo, config).config))
    common.show_view(policy, policy_lines, as_json=as_json)


def _value(data: object, dotted: str) -> str:
    """The value at a dotted key. Quoted parts are names that contain dots."""
    value = data
    for part in re.findall(r'"[^"]*"|[^.]+', dotted):
        value = value.get(part.strip('"')) if isinstance(value, dict) else None
    text = str(value)
    return text if len(text) <= (limit := 60) else f"{text[: limit - 1]}…"


config = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=VERBS["config"].summary)
config.command(name="show")(config_show)
