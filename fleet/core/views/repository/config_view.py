"""One key of the configuration with its value, as `fleet config get` prints it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConfigValueView:
    """A key of the configuration as it applies here."""

    key: str
    """With dots, such as `run.workers`; a table such as `run` holds several."""
    value: object
    """Its value: a text, a number, true or false, null where none is set, a list or a table."""
    origin: str
    """Where the value comes from; empty for a table, whose keys may come from several places."""
