"""The library of plans as a table. What stands in a plan is hostile text."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.safe import safe
from fleet.core.parameters import shown

TITLE, HELP = 70, 100


def shelf_lines(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each plan with where it is kept, then what it takes."""
    wide = max((len(entry["name"]) for entry in entries), default=0)
    lines = []
    for entry in entries:
        said = f"can't be read: {entry['problem']}" if entry["problem"] else entry["title"]
        limit = TITLE if not entry["problem"] else 2 * TITLE
        lines.append(f"{safe(entry['name']):<{wide}}  {entry['where']:<10}  {safe(said, limit=limit)}".rstrip())
        lines += [f"{'':<{wide}}    {_parameter(parameter)}" for parameter in entry["parameters"]]
    return lines


def _parameter(parameter: Mapping[str, Any]) -> str:
    kind = f"one of {', '.join(map(safe, parameter['choices']))}" if parameter["choices"] else parameter["type"]
    holds = "required" if parameter["required"] else f"{safe(shown(parameter['default']), limit=HELP)} unless set"
    about = f"  {safe(parameter['help'], limit=HELP)}" if parameter["help"] else ""
    return f"--set {safe(parameter['name'])}=…  ({kind}; {holds}){about}"
