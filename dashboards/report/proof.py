"""How what landed was proven: the gate, and each subtask's criteria, which ran again on the merged tree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dashboards.report.blocks import Block, Cell, Code, Paragraph, Table
from dashboards.text.formats import counted, untested
from fleet.core.base.ids import SubtaskId
from fleet.core.state.state import RunState


@dataclass(frozen=True, slots=True)
class Proven:
    """A criterion of a subtask that landed."""

    subtask: SubtaskId
    criterion: str
    """What is true when it passes, in words."""
    command: str | None
    """What was run, or what a review looked for; None: a check that the configuration names."""
    failed_before: bool
    """Whether it failed before the work was done; else it is a guard, which passed before, too."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What verdicts of the run rest on."""

    gate: str | None
    """The project's command; empty: there is none; None: not recorded."""
    criteria: Sequence[Proven]


def proof_of(state: RunState) -> Proof:
    criteria = [
        Proven(spec.id, check.criterion, check.shown if check.run or check.review else None, check.fails_before)
        for spec in state.plan.subtasks
        if state.subtasks[spec.id].landed is not None
        for check in spec.acceptance
    ]
    return Proof(state.gate_command, criteria)


def proof_blocks(proof: Proof, *, batches: int, red: int, commits: int, tested: int) -> Iterator[Block]:
    if not commits and not proof.criteria:
        return
    gate = f"the project's gate ({proof.gate}) and " if proof.gate else ""
    none = "" if proof.gate else " There is no gate: nothing but these criteria was run."
    yield Paragraph(
        f"Before a commit landed, {gate}its criteria ran on a clean checkout of the merged tree, in "
        f"{counted(batches, 'batch')}, "
        f"{red} of them red and sent back. {counted(commits, 'commit')}{untested(commits, tested)}.{none}"
    )
    rows: list[list[Cell]] = [
        [
            Code(each.subtask),
            each.criterion,
            Code(each.command) if each.command is not None else "a check of the configuration",
            "failed" if each.failed_before else "passed: a guard",
        ]
        for each in proof.criteria
    ]
    if rows:
        yield Table(
            "Criteria, all of them green when their commit landed", ("subtask", "criterion", "command", "before"), rows
        )
