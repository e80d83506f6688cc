"""The tools by name: a new one is a file and a row here."""

from collections.abc import Callable
from typing import Any

from agents.tools.background import Background
from agents.tools.bash import Bash
from agents.tools.edit import EditTool
from agents.tools.explore.reading import History, ListFiles, ReadFile, Search
from agents.tools.explore.repo_map import RepoMap
from agents.tools.report import ReportTool
from agents.tools.tool import ReadOnlyTool, Tool, ToolOptions
from fleet.core.state.facts import Report
from fleet.ports.agents import Workspace


def _fetch(workspace: Workspace, options: ToolOptions) -> Tool[Report]:
    from agents.tools.fetch import Fetch  # noqa: PLC0415 - imports an HTTP client

    return Fetch(workspace, options)


WORKER_TOOLS: dict[str, Callable[[Workspace, ToolOptions], Tool[Report]]] = {
    "background": Background,
    "bash": Bash,
    "str_replace_based_edit_tool": EditTool,
    "fetch": _fetch,
    "report": lambda _workspace, _options: ReportTool(),
}

PLANNER_TOOLS: dict[str, type[ReadOnlyTool[Any]]] = {
    "repo_map": RepoMap,
    "list_files": ListFiles,
    "read_file": ReadFile,
    "search": Search,
    "history": History,
}
