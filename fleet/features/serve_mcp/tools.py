"""The tools of `fleet mcp`: a row for each, with what a client reads about it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fleet.features.serve_mcp.desk import Answer, Approve, Arguments, Begin, Desk, Diff, OfRun, Pause, Show, Wait
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
    takes: type[Arguments]
    effect: Effect
    do: Callable[[Desk, Any], Awaitable[dict[str, Any]]]
    view: type[View] | None
    """The view that it returns, if that is always the same."""

    @property
    def input_schema(self) -> dict[str, Any]:
        return self.takes.model_json_schema()

    @property
    def output_schema(self) -> dict[str, Any]:
        """The keys that `--json` prints, too; the reference explains each."""
        return shape_of(self.view)


TOOLS: tuple[FleetTool, ...] = (
    FleetTool(
        "plan",
        "Start a run that plans an epic and then waits: nothing is built before `approve`. Returns at once with the "
        "run's name; `wait`, then `show` its plan.",
        Begin,
        "starts",
        Desk.plan,
        StatusView,
    ),
    FleetTool(
        "run",
        "Start a run that plans an epic and builds it, within a budget. Agents work in worktrees of their own; the "
        "result is the new branch fleet/RUN, and the checkout is not touched. Subtasks that the operator's review "
        "rules stop wait for approval. Returns at once with the run's name; poll `wait`.",
        Begin,
        "starts",
        Desk.run,
        StatusView,
    ),
    FleetTool(
        "status",
        "How a run is doing: its state, what it needs from a person, open questions, what landed, cost and budget.",
        OfRun,
        "reads",
        Desk.status,
        StatusView,
    ),
    FleetTool(
        "show",
        "The plan of a run with its version, or its incidents, or one subtask with its attempts, checks and failures.",
        Show,
        "reads",
        Desk.show,
        None,
    ),
    FleetTool("diff", "What an attempt at a subtask changed, as a patch.", Diff, "reads", Desk.diff, DiffView),
    FleetTool("answer", "Answer an open question of a run.", Answer, "decides", Desk.answer, RequestView),
    FleetTool(
        "approve",
        "Approve subtasks of a plan that wait for approval, one by one and by the plan's version. Those of high risk "
        "are refused: a person approves them.",
        Approve,
        "decides",
        Desk.approve,
        ReviewView,
    ),
    FleetTool(
        "pause",
        "Start no new agents in a run until a person resumes it. Running agents finish.",
        Pause,
        "decides",
        Desk.pause,
        RequestView,
    ),
    FleetTool(
        "wait",
        "Wait until a run ends or needs somebody, or the seconds are over; returns its status. A run takes minutes to "
        "hours: call it again.",
        Wait,
        "reads",
        Desk.wait,
        StatusView,
    ),
    FleetTool(
        "report",
        "The report of a run: what landed and what did not, checks, recovery, cost, what needs attention.",
        OfRun,
        "reads",
        Desk.report,
        ReportData,
    ),
)


def offered(*, read_only: bool) -> Mapping[str, FleetTool]:
    """The tools of a session, by name."""
    return {tool.name: tool for tool in TOOLS if tool.effect == "reads" or not read_only}
