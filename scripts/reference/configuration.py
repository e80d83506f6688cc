"""Generates the reference of the configuration: meanings from comments in config.toml, types from the settings."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fleet.config.layer import WHOLE
from fleet.config.load import default_config, defaults_file
from fleet.features.nodes.settings import NodeSettings
from fleet.features.notify.channels import NotifyChannel
from fleet.ports.settings import PriceSection, WorkerSection
from scripts.reference.page import code, table
from scripts.reference.shapes import default_text, type_text, value_text

OPERATORS = "[yours]"
"""Mark in config.toml for a key that a repository may not set."""
_HEADING = re.compile(r"^(?:# )?\[([a-z_]+(?:\.[a-z_]+|\.\"[^\"]+\")*)\]$")
_KEY = re.compile(r"^(?:# )?([A-Za-z_]+) = (.*)$")
_TRAILING = re.compile(r"^(?:\"[^\"]*\"|[^\"#\[{])+?\s# (.*)$")

NAMES = {"workers.coder": "workers.NAME", "nodes.builder": "nodes.NAME"}
TABLES: Mapping[str, type[BaseModel]] = {'models.prices."MODEL"': PriceSection, 'notify.channels."NAME"': NotifyChannel}
"""Tables that config.toml shows once, without a default."""


@dataclass
class Documented:
    """Documentation of one section in config.toml."""

    about: str = ""
    keys: dict[str, str] = field(default_factory=dict)


def models() -> Mapping[str, type[BaseModel]]:
    """Return the sections under the names used on the page."""
    plain = {
        name: info.annotation
        for name, info in WHOLE.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
    }
    return {**plain, "workers.NAME": WorkerSection, "nodes.NAME": NodeSettings, **TABLES}


def content() -> str:
    sections = read(defaults_file().read_text(encoding="utf-8"))
    return "\n\n".join(_section(name, model, sections[name]) for name, model in models().items())


def read(text: str) -> dict[str, Documented]:
    """Return the comments of each section and its keys."""
    reader = _Reader()
    for line in text.splitlines():
        reader.take(line)
    return reader.sections


class _Reader:
    """Reads the file line by line. A comment belongs to the key or heading below it, or to its section."""

    def __init__(self) -> None:
        self.sections: dict[str, Documented] = {}
        self._here: Documented | None = None
        self._comments: list[str] = []
        self._inside_list = False

    def take(self, line: str) -> None:
        if self._inside_list:
            self._inside_list = line != "]"
        elif heading := _HEADING.match(line):
            self._begin(heading[1])
        elif self._here is not None and (key := _KEY.match(line)):
            self._key(key[1], key[2])
        elif line.startswith("# "):
            self._comments.append(line[2:])
        elif not line:
            self._end_of_paragraph()

    def _begin(self, name: str) -> None:
        parent, _, key = name.partition(".")
        if parent in self.sections and key in models()[parent].model_fields:  # [box.environment]
            self.sections[parent].keys[key] = self._comment()
            self._here = None
        else:
            self._here = self.sections[_shown(name)] = Documented(about=self._comment())

    def _key(self, name: str, value: str) -> None:
        assert self._here is not None
        trailing = _TRAILING.match(value)
        self._here.keys[name] = self._comment() or (trailing[1] if trailing else "")
        self._inside_list = value == "["

    def _end_of_paragraph(self) -> None:
        comment = self._comment()
        if self._here is not None and comment:
            self._here.about = f"{self._here.about} {comment}".strip()

    def _comment(self) -> str:
        comment, self._comments = " ".join(self._comments), []
        return comment


def _shown(name: str) -> str:
    """Return the heading for a table that config.toml shows only once."""
    for table_name in TABLES:
        if name.startswith(table_name.partition('"')[0]):
            return table_name
    return NAMES.get(name, name)


def _section(name: str, model: type[BaseModel], documented: Documented) -> str:
    tables = {key for key in model.model_fields if any(each.startswith(f'{name}.{key}."') for each in models())}
    rows = [
        (code(key), type_text(info), _default(name, key, info), _meaning(documented.keys.get(key, "")))
        for key, info in model.model_fields.items()
        if key not in tables
    ]
    about = f"{_meaning(documented.about)}\n\n" if documented.about else ""
    return f"## `[{name}]`\n\n{about}{table(('key', 'value', 'default', 'meaning'), rows)}"


def _default(section: str, key: str, info: FieldInfo) -> str:
    """Return the default from config.toml. For prices, nodes and channels, return whether the key is required."""
    if section in TABLES or section.startswith("nodes"):
        return default_text(info)
    config = default_config()
    return value_text(getattr(config.workers["coder"] if section == "workers.NAME" else getattr(config, section), key))


def _meaning(comment: str) -> str:
    """Convert a comment to a table cell. The default has a separate column."""
    comment = comment.replace(" No default.", "")
    return f"{comment.replace(OPERATORS, '').strip()} *Yours alone.*" if OPERATORS in comment else comment
