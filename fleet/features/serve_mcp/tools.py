"""The table of the tools of `fleet mcp`, with the descriptions that clients read."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fleet.features.serve_mcp.tool_handlers import (
    AnswerArguments,
    Approve,
    Begin,
    DiffArguments,
    OfRun,
    Pause,
    Show,
    ToolArguments,
    ToolHandlers,
    Wait,
)
from fleet.read.base_view import View, shape_of
from fleet.read.question_view import RequestView, ReviewView
from fleet.read.report_data import ReportData
from fleet.read.run_view import StatusView
from fleet.read.subtask_view import DiffView

Effect = Literal["reads", "starts", "decides"]
"""`reads`: does not change anything. `starts`: starts a run, which costs money. `decides`: acts on your behalf."""


@dataclass(frozen=True, slots=True)
class FleetTool:
    """A tool as clients see it."""

    name: str
    description: str
    takes: type[ToolArguments]
    effect: Effect
    do: Callable[[ToolHandlers, Any], Awaitable[dict[str, Any]]]
    view: type[View] | None
    """The returned view, if it is always the same."""

    @property
    def input_schema(self) -> dict[str, Any]:
        return self.takes.model_json_schema()

    @property
    def output_schema(self) -> dict[str, Any]:
        """The schema of the view. The same keys are printed by `--json` and described in the reference."""
        return shape_of(self.view)


TOOLS: tuple[FleetTool, ...] = (
    FleetTool(
        "plan",
        "Start a run that plans an epic and then waits for `approve` before it builds anything. Returns the name of "
        "the run immediately. Call `wait`, then `show` to read the plan.",
        Begin,
        "starts",
        ToolHandlers.plan,
        StatusView,
    ),
    FleetTool(
        "run",
        "Start a run that plans an epic and builds it within a budget. Agents work in separate worktrees. The result "
        "is the new branch fleet/RUN. The checkout is not touched. Subtasks that the operator's review rules don't "
        "approve wait for approval. Returns the name of the run immediately. Poll `wait`.",
        Begin,
        "starts",
        ToolHandlers.run,
        StatusView,
    ),
    FleetTool(
        "status",
        "Show the status of a run: state, pending decisions, open questions, landed subtasks, cost and budget.",
        OfRun,
        "reads",
        ToolHandlers.status,
        StatusView,
    ),
    FleetTool(
        "show",
        "Show the plan of a run with its version, its incidents, or a subtask with its attempts, checks and failures.",
        Show,
        "reads",
        ToolHandlers.show,
        None,
    ),
    FleetTool(
        "diff",
        "Show the changes of an attempt at a subtask, as a patch.",
        DiffArguments,
        "reads",
        ToolHandlers.diff,
        DiffView,
    ),
    FleetTool(
        "answer", "Answer an open question of a run.", AnswerArguments, "decides", ToolHandlers.answer, RequestView
    ),
    FleetTool(
        "approve",
        "Approve pending subtasks of a plan, by id and plan version. High-risk subtasks are rejected, because only a "
        "person can approve them.",
        Approve,
        "decides",
        ToolHandlers.approve,
        ReviewView,
    ),
    FleetTool(
        "pause",
        "Pause a run: running agents finish, and no new agents start until a person resumes it.",
        Pause,
        "decides",
        ToolHandlers.pause,
        RequestView,
    ),
    FleetTool(
        "wait",
        "Wait until a run ends, needs a person, or the time is up. Returns its status. Runs take minutes to hours, so "
        "call this repeatedly.",
        Wait,
        "reads",
        ToolHandlers.wait,
        StatusView,
    ),
    FleetTool(
        "report",
        "Show the report of a run: landed and unfinished subtasks, checks, recovery, cost and open issues.",
        OfRun,
        "reads",
        ToolHandlers.report,
        ReportData,
    ),
)


def offered(*, read_only: bool) -> Mapping[str, FleetTool]:
    """The tools of a session, by name."""
    return {tool.name: tool for tool in TOOLS if tool.effect == "reads" or not read_only}
