"""Generates the reference of `--json` from the view classes."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import get_args

from fleet.core.base.usage import Cost
from fleet.core.facts.facts import CheckRun, Failure, Report, SetupRun, Spread, SubtaskEstimate
from fleet.core.policy.remedies import RemedyRung
from fleet.core.state.state import Review, TestedBatch
from fleet.core.state.status import Progress
from fleet.features.audit import attribution, audit_view
from fleet.features.forge import pulls_view
from fleet.features.nodes import node_views
from fleet.features.notify import causes, notify_view
from fleet.features.recipes import init_view
from fleet.features.rehearse import rehearsal_view
from fleet.features.serve_acp import verbs as acp_verbs
from fleet.features.serve_mcp import verbs as mcp_verbs
from fleet.read import (
    agent_rows,
    base_view,
    costs,
    incident_view,
    plan_views,
    policy_document,
    question_view,
    run_view,
    subtask_view,
)
from fleet.read.figures import FigureValues, Kind, figures_of
from scripts.reference.facts import type_words
from scripts.reference.page import code, table
from scripts.reference.source import class_doc, field_docs, field_types

VERBS: Mapping[type, str] = {
    run_view.StatusView: "`fleet status --json`; `fleet runs --json`: a list of them; `fleet run --json` at the end",
    run_view.RunView: "`fleet show RUN --json`",
    incident_view.IncidentView: "`fleet show RUN --incident N --json`",
    subtask_view.SubtaskView: "`fleet show SUBTASK --json`",
    audit_view.AuditView: "`fleet audit --json`",
    attribution.CommitsView: "`fleet commits --json`",
    init_view.TrialView: "`fleet try --json`",
    init_view.InitView: "`fleet init --json`",
    base_view.ConfigValueView: "`fleet config get --json`",
    run_view.LogView: "`fleet logs gate --json`, `fleet logs setup --json`",
    rehearsal_view.RehearsalView: "`fleet rehearse --json`",
    pulls_view.TendView: "`fleet tend --json`",
    base_view.MergeView: "`fleet merge --json`",
    pulls_view.PullsView: "`fleet pr --json`",
    rehearsal_view.PastTasksView: "`fleet rehearse --for-real --json`",
    policy_document.PolicyView: "`fleet explain-policy --json`",
    run_view.LimitsView: "`fleet limits --json`",
    question_view.RequestView: (
        "`fleet pause`, `cancel`, `tell`, `retry`, `answer`, `plans edit RUN`, `nodes add`, `nodes drain`, "
        "`nodes undrain`, with `--json`"
    ),
    question_view.ReviewView: "`fleet approve --json`, `fleet reject --json`",
    subtask_view.DiffView: "`fleet diff --json`",
    costs.EstimateView: "`fleet run --estimate --json`",
    plan_views.VersionChangesView: "`fleet show --versions N..M --json`: a list of them",
    plan_views.RunPlanView: "the tool `show` of `fleet mcp`",
    plan_views.PlanCheckView: "`fleet plans check --json`",
    plan_views.PlanChangesView: "`fleet plans diff --json`",
    plan_views.GraphView: "`fleet plans graph --json`",
    plan_views.LibraryPlanView: "`fleet plans list --json`: a list of them",
    plan_views.SavedPlanView: "`fleet plans save --json`",
    plan_views.EditedPlanView: "`fleet plans edit --json`",
    base_view.Finding: "`fleet doctor --json`, `fleet nodes check NAME --json`: a list of them",
    base_view.CleanView: "`fleet clean --json`",
    node_views.GreetingView: "`fleet node --json`",
    node_views.NodeView: "`fleet nodes --json`: a list of them",
    node_views.CleanedNodeView: "`fleet nodes clean NAME --json`",
    notify_view.ChannelTestView: "`fleet notify test --json`: a list of them",
    notify_view.SentView: "`fleet notify list --json`: a list of them",
    notify_view.NotifiedRunsView: "`fleet notify watch --json`",
    notify_view.NotificationView: "input of `[notify]` channels without a template",
    acp_verbs.EditorCommandView: "`fleet acp --list --json`: a list of them",
    mcp_verbs.McpToolView: "`fleet mcp --list --json`: a list of them",
    base_view.ServerView: "`fleet metrics --json`, `fleet simulate --json`",
    base_view.CompletionView: "`fleet completion --json`",
    base_view.VerbsView: "`fleet help --json`",
    base_view.ProgramView: "`fleet version --json`",
}
PARTS = (
    run_view,
    incident_view,
    question_view,
    subtask_view,
    audit_view,
    attribution,
    policy_document,
    init_view,
    base_view,
    rehearsal_view,
    pulls_view,
    agent_rows,
    costs,
    node_views,
    plan_views,
    notify_view,
)
FROM_FACTS = (CheckRun, SetupRun, Failure, Report, Cost, SubtaskEstimate, Spread)
FROM_STATE = (Progress, Review, TestedBatch, RemedyRung)
NUMBERS: Mapping[Kind, str] = {
    **dict.fromkeys(get_args(Kind), "float | None"),
    "count": "int",
    "flag": "bool",
    "part": "tuple[int, int]",
    "rate": "tuple[int, int]",
}
"""Types of figures, by kind."""
PART_NAMES = frozenset(module.__name__ for module in PARTS)
NOT_VIEWS = frozenset(
    {
        *(
            attribution.Attributed,
            attribution.Revert,
            attribution.FleetCommits,
            costs.LandedCost,
            agent_rows.AgentRow,
        ),
        *(plan_views.SavedPlan, plan_views.PlanReview, plan_views.PendingSubtask, causes.NotificationCause),
        *(run_view.RunEnding, question_view.Needed, question_view.Approval),
        costs.AttemptCosts,
        run_view.SubtaskLine,
    }
)
ERRORS = frozenset({question_view.ErrorView, question_view.FailedView})
"""Views described by hand at the top of the page."""
MEASURED = frozenset({rehearsal_view.MachineView, rehearsal_view.RehearsalOutcome})
FACTS = {kind.__name__: f"[{kind.__name__}](facts.md#{kind.__name__.lower()})" for kind in FROM_FACTS}


def shapes() -> tuple[type, ...]:
    """Return all views. Views printed by a command come first."""
    kinds = [kind for module in PARTS for kind in vars(module).values() if isinstance(kind, type)]
    views = [
        kind
        for kind in kinds
        if is_dataclass(kind) and kind.__module__ in PART_NAMES and kind not in NOT_VIEWS | ERRORS | MEASURED
    ]
    return tuple(dict.fromkeys((*VERBS, *FROM_STATE, *views)))


def rows(view: type) -> list[tuple[str, str, str]]:
    """Return a table row for each key of a view."""
    bases = view.__mro__[-2::-1]  # base classes first
    types = {name: kind for base in bases for name, kind in field_types(base).items()}
    meanings = {name: text for base in bases for name, text in field_docs(base).items()}
    found = []
    for field in fields(view):
        if field.type is FigureValues:
            found += [(code(each.name), _type(NUMBERS[each.kind]), each.help) for each in figures_of("json")]
            continue
        key = field.name.removesuffix("_")
        found.append((code(key), _type(types[field.name]), meanings.get(field.name, "")))
    return found


def _type(annotation: str) -> str:
    words = type_words(annotation)
    for name in (*FACTS, *(view.__name__ for view in shapes())):
        link = FACTS.get(name, f"[{name}](#{name.lower()})")
        words = words.replace(code(name), link)
    return words


def content() -> str:
    return "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    for view in shapes():
        verbs = f" {VERBS[view]}." if view in VERBS else ""
        yield f"### {view.__name__}\n\n{class_doc(view)}{verbs}"
        yield table(("key", "type", "meaning"), rows(view))
