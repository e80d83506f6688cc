"""What a person chose for one run on its command line and in its environment, so that a resumed run keeps it.

A value that may hold a secret is never kept: the journal has only its key.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fleet.config.layer import FLAG, Key, Layer, flat, nested
from fleet.config.toml import shown_key
from fleet.core.plans.limits import Choices
from fleet.errors import UsageError


def choices(config_file: Path | None, flags: Mapping[Key, object], environment: Mapping[Key, object]) -> Choices:
    """The choices that a journal may hold. Where the state is kept is not a choice of one run."""
    kept = [
        {key: value for key, value in values.items() if _may_be_kept(key, value)} for values in (flags, environment)
    ]
    return Choices(
        config_file=str(config_file.absolute()) if config_file is not None else None,
        flags=nested(kept[0].items()),
        environment=nested(kept[1].items()),
        withheld={
            **{shown_key(key): "environment" for key, value in environment.items() if _may_hold_secret(key, value)},
            **{shown_key(key): "flag" for key, value in flags.items() if _may_hold_secret(key, value)},
        },
    )


def kept_file(before: Choices) -> Path | None:
    """The file of `--config` that a run was started with. Raises `UsageError` if it is gone."""
    if before.config_file is None or Path(before.config_file).is_file():
        return Path(before.config_file) if before.config_file is not None else None
    raise UsageError(
        f"{before.config_file}, the --config of the run, no longer exists", hint="name another with --config FILE"
    )


def require_secrets(before: Choices, *, flags: Mapping[Key, object], environment: Mapping[Key, object]) -> None:
    """Raise `UsageError` if a value is missing that was not kept. A variable can't stand in for a flag."""
    given = {
        "flag": {shown_key(key) for key in flags},
        "environment": {shown_key(key) for key in (*flags, *environment)},
    }
    lacking = sorted(key for key, place in before.withheld.items() if key not in given[place])
    if lacking:
        hint = "give it again, as when the run was started: an option, or a FLEET_* variable"
        raise UsageError(f"{', '.join(lacking)} may hold a secret, so no run keeps it", hint=hint)


def kept_layer(tables: Mapping[str, Any]) -> Layer:
    """Choices of before as a layer. Who looks for their origin finds a flag."""
    values = dict(flat(tables)) if tables else {}
    return Layer("the options that the run was started with", values, dict.fromkeys(values, FLAG))


def _may_be_kept(key: Key, value: object) -> bool:
    return key[0] != "state" and not _may_hold_secret(key, value)


def _may_hold_secret(key: Key, value: object) -> bool:
    if key[-1] == "base_url":
        parts = urlsplit(str(value))
        return parts.username is not None or parts.password is not None
    return "environment" in key or "headers" in key
