"""Writes what a rehearsal measured into a repository's fleet.toml, each key with its reason.

What a person has set stays as it is. Other lines of the file are not touched.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from fleet.config.toml import parse_toml, read_text
from fleet.core.views.rehearsal_view import RehearsalView, Setting
from fleet.errors import UsageError


def write_advice(path: Path, view: RehearsalView, *, gate: str) -> str:
    """Add the settings that a file does not have. Returns what was done, in words."""
    text = read_text(path) if path.exists() else ""
    settings = ([Setting("checks.gate", gate, "what was rehearsed")] if gate.strip() else []) + list(view.settings)
    present = parse_toml(text, name=str(path))
    new = [setting for setting in settings if _value(present, setting.key) is None]
    kept = [setting.key for setting in settings if setting not in new]
    measured = f"measured by {view.run}, {view.commits} commits up to {view.head[:12]}"
    added = _with_settings(text, new, measured)
    after = parse_toml(added, name=str(path))
    if any(_value(after, setting.key) != setting.value for setting in new):
        raise UsageError(f"{path} has a form that keys can't be added to automatically; set these yourself")
    if new:
        try:
            path.write_text(added, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
    wrote = f"wrote {', '.join(setting.key for setting in new)} to {path}" if new else f"{path} already sets all of it"
    return f"{wrote}; kept your own: {', '.join(kept)}" if kept else wrote


def _value(data: Mapping[str, Any], key: str) -> object:
    section, _, name = key.partition(".")
    table = data.get(section, {})
    return table.get(name) if isinstance(table, Mapping) else None


def _with_settings(text: str, settings: Sequence[Setting], measured: str) -> str:
    """The text with these settings: below the header of their table, or in a table of their own at the end."""
    lines = text.splitlines()
    for section, group in groupby(sorted(settings, key=lambda each: each.key), lambda each: each.key.partition(".")[0]):
        entries = [line for setting in group for line in _lines(setting, measured)]
        header = re.compile(rf"\s*\[\s*{re.escape(section)}\s*\]\s*(#.*)?")
        at = next((number for number, line in enumerate(lines, start=1) if header.fullmatch(line)), None)
        if at is None:
            lines += [*([""] if lines else []), f"[{section}]", *entries]
        else:
            lines[at:at] = entries
    return "\n".join((*lines, ""))


def _lines(setting: Setting, measured: str) -> Iterator[str]:
    yield f"# {setting.reason[0].upper()}{setting.reason[1:]} ({measured})."
    yield f"{setting.key.partition('.')[2]} = {json.dumps(setting.value)}"
