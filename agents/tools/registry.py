"""The tools there are, by name: a new one is a file and a line here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agents.tools.bash import Bash, Boxed
from agents.tools.edit import EditTool
from agents.tools.explore import Exploring
from agents.tools.fetch import Fetch
from agents.tools.history import History
from agents.tools.list_files import ListFiles
from agents.tools.read_file import ReadFile
from agents.tools.repo_map import RepoMap
from agents.tools.report import ReportTool
from agents.tools.search import Search
from agents.tools.tool import Tool
from fleet.core.facts import Report
from fleet.ports import NO_EXTRAS, Desk, Extras


@dataclass(frozen=True, slots=True)
class Bounds:
    """What holds for every tool."""

    command_s: float
    output_chars: int
    extras: Extras = NO_EXTRAS
    """What the box of commands shows and allows besides."""
    secrets: tuple[str, ...] = ()
    """Values in that box that a model need not see."""
    hosts: tuple[str, ...] = ()
    """Whom `fetch` may ask."""


WORKER_TOOLS: dict[str, Callable[[Desk, Bounds], Tool[Report]]] = {
    "bash": lambda desk, bounds: Bash(
        desk,
        timeout_s=bounds.command_s,
        output_chars=bounds.output_chars,
        boxed=Boxed(bounds.extras, bounds.secrets),
    ),
    "str_replace_based_edit_tool": lambda desk, bounds: EditTool(desk, output_chars=bounds.output_chars),
    "fetch": lambda desk, bounds: Fetch(desk, bounds.hosts),
    "report": lambda _desk, _bounds: ReportTool(),
}

PLANNER_TOOLS: dict[str, type[Exploring[Any]]] = {
    "repo_map": RepoMap,
    "list_files": ListFiles,
    "read_file": ReadFile,
    "search": Search,
    "history": History,
}
