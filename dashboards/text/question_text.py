"""What a run needs from a person, in words: short for a list, and with all that an answer takes."""

from collections.abc import Iterator, Mapping, Sequence

from dashboards.text.formats import counted, duration
from dashboards.text.incident_text import STRATEGIES
from dashboards.text.safe import safe, safe_block
from fleet.core.views.causes import Needed
from fleet.core.views.question_view import QuestionView, TriedView

NEEDS: Mapping[Needed, str] = {
    "resume": "resume",
    "approve": "approval",
    "answer": "answer",
    "budget": "budget",
    "unpause": "unpause",
}
TRIED = 6  # attempts that are listed; the first ones are left out
TEXT = 200
EVIDENCE = 24  # lines


def needs_text(needs: Sequence[Needed]) -> str:
    return ", ".join(NEEDS[need] for need in needs)


def ends_text(ends_in_s: float | None) -> str:
    """When the run ends without an answer; empty if it does not."""
    return f"the run ends as partial in {duration(ends_in_s)}" if ends_in_s is not None else ""


def consequence(question: QuestionView) -> str:
    """What waits for the answer, and until when."""
    parts = [f"{counted(question.waiting, 'subtask')} wait{'s' * (question.waiting == 1)} for it"]
    return "; ".join([*parts * bool(question.waiting), *filter(None, [ends_text(question.ends_in_s)])])


def tried_lines(question: QuestionView) -> Iterator[str]:
    """The attempts so far, one line each."""
    left_out = len(question.tried) - TRIED
    if left_out > 0:
        yield f"… {counted(left_out, 'attempt')} before"
    yield from map(_tried, question.tried[-TRIED:])


def _tried(tried: TriedView) -> str:
    worker = f"{safe(tried.worker, limit=40)}{f', {safe(tried.model, limit=40)}' if tried.model else ''}"
    failed = f"{tried.failure}: {safe(tried.summary, limit=TEXT)}" if tried.failure else "finished"
    return f"attempt {tried.attempt} ({STRATEGIES[tried.strategy]}; {worker})  {failed}"


def question_lines(question: QuestionView, *, evidence: int = EVIDENCE) -> Iterator[str]:
    """Everything beside the question itself."""
    if question.about is not None:
        yield f"subtask   {safe(question.about)}{f': {safe(question.title, limit=TEXT)}' if question.title else ''}"
    for place, line in enumerate(tried_lines(question)):
        yield f"{'tried' if not place else '':<9} {line}"
    if question.paths:
        yield f"files     {', '.join(safe(path, limit=80) for path in question.paths)}"
    if after := consequence(question):
        yield f"then      {after}"
    if question.evidence and evidence:
        yield "output"
        yield from (f"  | {line}" for line in safe_block(question.evidence, lines=evidence).splitlines())
