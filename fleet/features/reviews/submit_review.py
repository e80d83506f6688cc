"""`submit_review`: how a reviewer ends its review. A finding without a place in the change is discarded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from agents.models.answer import Block
from agents.tools.tool import Arguments, Finished, ToolResult, parse_arguments, plain_schema, strict_declaration
from fleet.core.facts.facts import Failure, Finding
from fleet.core.verdicts.oddities import Patch

MOST_FINDINGS = 20  # of one review
LONGEST_PROBLEM = 1_000  # characters
LONGEST_TEXT = 300  # characters of the line that a finding names
_DESCRIPTION = (
    "Submits every fault that you found in the change, and ends the review. An empty list says that there is none."
)


class SubmittedFinding(Arguments):
    """A fault of the change."""

    file: str = Field(description="The path, exactly as the change shows it.")
    line: int = Field(description="The number of the line, as the change shows it.")
    problem: str = Field(description="What goes wrong, and when, in a sentence or two.")


class ReviewArguments(Arguments):
    """What `submit_review` takes."""

    findings: tuple[SubmittedFinding, ...] = Field(description="Every fault that you found.")


@dataclass(frozen=True, slots=True)
class Submitted:
    """A review: its findings, and how many of them have no place."""

    findings: tuple[Finding, ...]
    discarded: int


SUBMIT_REVIEW: Block = strict_declaration("submit_review", _DESCRIPTION, ReviewArguments)


def submitted(raw: Mapping[str, Any], patch: Patch) -> Submitted:
    """What a reviewer submitted, held against the change. Raises `ToolInputError`."""
    arguments = parse_arguments(ReviewArguments, raw)
    placed = [_placed(finding, patch) for finding in arguments.findings]
    found = tuple(dict.fromkeys(finding for finding in placed if finding is not None))
    return Submitted(found[:MOST_FINDINGS], placed.count(None))


def _placed(finding: SubmittedFinding, patch: Patch) -> Finding | None:
    line, problem = patch.line(finding.file, finding.line), finding.problem.strip()[:LONGEST_PROBLEM]
    if line is None or not problem:
        return None
    return Finding(file=finding.file, line=finding.line, problem=problem, text=line.text[:LONGEST_TEXT], sign=line.sign)


class SubmitReview:
    """Ends a review. It may repair the places of its findings once."""

    name: ClassVar = "submit_review"
    declaration: ClassVar[Block] = SUBMIT_REVIEW

    def __init__(self, patch: Patch, *, repairs: int = 1) -> None:
        self._patch = patch
        self._repairs_left = repairs

    async def run(self, raw: Mapping[str, Any]) -> ToolResult | Finished[Submitted | Failure]:
        review = submitted(raw, self._patch)
        if not review.discarded or self._repairs_left <= 0:
            return Finished(review)
        self._repairs_left -= 1
        bad = [each for each in parse_arguments(ReviewArguments, raw).findings if _placed(each, self._patch) is None]
        return ToolResult(_misplaced(bad), is_error=True)


def _misplaced(bad: Sequence[SubmittedFinding]) -> str:
    listed = "\n".join(f"- {each.file[:200]!r}, line {each.line}" for each in bad[:MOST_FINDINGS])
    return (
        f"These findings name no line that the change shows, or no problem:\n{listed}\n"
        "Submit the whole review again, with file and line as the change shows them. What has no place is discarded."
    )


class NoArguments(Arguments):
    """What `read_change` takes: nothing."""


class ReadChange:
    """The change under review, whose text the conversation begins with."""

    name: ClassVar = "read_change"
    declaration: ClassVar[Block] = {
        "name": name,
        "description": "Returns the change under review, with the number of each line.",
        "input_schema": plain_schema(NoArguments),
    }

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        parse_arguments(NoArguments, raw)
        return ToolResult("You have the whole change already, above.")
