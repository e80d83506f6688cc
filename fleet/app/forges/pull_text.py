"""What a pull request says: parts of the run's report, and what a reviewer of this one needs besides.

Everything that a model or another person wrote is escaped by the report's Markdown. A token never gets in, nor the path
of the repository on this machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dashboards.report.blocks import Block, Document, Paragraph, Section
from dashboards.report.document import document
from dashboards.report.page import markdown
from dashboards.report.report_data import LandedSubtask, ReportData
from dashboards.text.formats import listed
from dashboards.text.safe import safe
from fleet.core.base.ids import SubtaskId
from fleet.core.state.facts import IssueSource
from fleet.forge.place import Place, issue_reference
from fleet.forge.program import redact
from worktrees.git.commit_message import without_closing_words

TITLE = 120  # characters
LONGEST = 60_000  # characters; GitHub takes 65,536
MOST = 40  # subtasks that are named
PARTS = ("landed", "proof", "human", "review", "cost", "undo")
"""Sections of the report, in the order of a reviewer's questions."""
BEGIN, END = "<!-- fleet:begin -->", "<!-- fleet:end -->"
"""Around what the fleet writes; a person's text beside it stays."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one pull request is about."""

    area: SubtaskId | None = None
    """The area of the plan; None: the whole result, or what no area did."""
    title: str = ""
    """The area's title."""
    subtasks: frozenset[SubtaskId] | None = None
    """Those whose commits it brings; None: all."""
    number: int = 1
    of: int = 1
    tested: bool = True
    """Whether the run tested the tree of its last commit."""


def pull_title(data: ReportData, issue: IssueSource | None, layer: Layer) -> str:
    title = issue.title if issue is not None else next(iter(data.goal.strip().splitlines()), "") or f"Run {data.run}"
    if layer.of > 1:
        title = f"{layer.title or 'The rest'} ({layer.number} of {layer.of}: {title})"
    return redact(safe(without_closing_words(title.lstrip("# ")), limit=TITLE))


def pull_body(data: ReportData, issue: IssueSource | None, place: Place, layer: Layer) -> str:
    """The text between the marks, with them."""
    data = _of_layer(data, layer)
    whole = document(data)
    titles = {section.anchor: section for section in whole.sections}
    sections = [titles[part] for part in PARTS if part in titles]
    first = Section("first", "What to look at first", list(_first(data, layer)))
    made = Document(f"fleet: {data.run}", list(_lead(data, issue, layer)), [first, *sections], whole.verdict)
    text = redact(markdown(made))
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n\n… The rest is in the report: `fleet report {data.run}`."
    return "\n\n".join(filter(None, (BEGIN, _closing(data, issue, place, layer), text.strip(), END)))


def with_body(existing: str, body: str) -> str:
    """The text of a pull request with our part replaced; what a person wrote around it stays."""
    before, begin, rest = existing.replace("\r\n", "\n").partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{body}{after}" if begin and end else body


def _closing(data: ReportData, issue: IssueSource | None, place: Place, layer: Layer) -> str:
    """The line that connects it with its issue: merging closes an issue whose run landed everything."""
    reference = issue_reference(issue.reference) if issue is not None else None
    if issue is None or reference is None:
        return ""
    near = reference.place == place
    name = f"#{reference.number}" if near else f"{reference.place.repo}#{reference.number}"
    if not near and (reference.place.kind, reference.place.host) != (place.kind, place.host):
        return f"For {issue.url}"
    done = data.state == "landed" and layer.number == layer.of
    return f"Closes {name}" if done else f"For {name}"


def _lead(data: ReportData, issue: IssueSource | None, layer: Layer) -> Sequence[str]:
    goal = f"The epic is {issue.reference}: {issue.title}" if issue is not None else f"The epic: {data.goal}"
    lead = [safe(goal, limit=1_000)]
    if layer.of > 1:
        lead.append(f"This is number {layer.number} of {layer.of} in a stack: each goes into the one before.")
    if data.simulated:
        lead.append("The model was simulated: answers and prices are scripted, everything else is real.")
    return lead


def _first(data: ReportData, layer: Layer) -> Sequence[Block]:
    """What deserves a closer look than the rest."""
    found: list[Block] = []
    if not layer.tested:
        found.append(
            Paragraph(
                "The run tested its commits in another order: the tree of this branch alone was not tested there, so "
                "wait for CI. The last pull request of the stack has the tested tree."
            )
        )
    if again := [part.id for part in data.landed if part.attempts > 1]:
        found.append(Paragraph(f"These landed only after more than one attempt: {listed(again, MOST)}."))
    widest = sorted(data.landed, key=lambda part: -part.files)[:3]
    if len(data.landed) > len(widest):
        files = ", ".join(f"{part.id} ({part.files})" for part in widest)
        found.append(Paragraph(f"These changed the most files: {files}."))
    if data.open:
        names = listed([part.id for part in data.open], MOST)
        found.append(Paragraph(f"Not everything landed: {names}. The table below says why."))
    found.append(
        Paragraph("No person has read the code that is proposed here, unless they say so in this conversation.")
    )
    return found


def _of_layer(data: ReportData, layer: Layer) -> ReportData:
    """The report of one layer: its subtasks alone. Costs and what is open are the whole run's."""
    warnings = [text.replace(data.repository, "the repository") for text in data.warnings]
    data = replace(data, warnings=warnings, repository="")
    if layer.subtasks is None:
        return data
    landed: list[LandedSubtask] = [part for part in data.landed if part.id in layer.subtasks]
    criteria = [each for each in data.proof.criteria if each.subtask in layer.subtasks]
    return replace(data, landed=landed, proof=replace(data.proof, criteria=criteria))
