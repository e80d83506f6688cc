"""The machines of a run in its report."""

from dashboards.report.document import document
from dashboards.report.page import markdown
from fleet.core.state import facts as f
from tests.dashboards.report.test_report import report_of
from tests.fleet.core.story import Story, plan_of


def test_the_machines_that_worked_for_a_run_are_listed_with_what_they_did() -> None:
    story = Story(plan=plan_of("api", "docs"))
    assert "Nodes" not in markdown(document(report_of(story)))
    story.happens(
        f.NodeConnected(
            at=0, node="builder", version="1", host="b.example", processors=1, memory_bytes=1, workers=2, checks=1
        )
    )
    for id_ in ("api", "docs"):
        story.happens(f.WorkerStarted(at=0, subtask=id_, number=1, node="builder"))
    story.attempt_fails("api", "infrastructure")
    story.happens(f.NodeLost(at=0, node="builder", why="no route to host"))
    story.landed("docs")
    text = markdown(document(report_of(story)))
    assert "| `builder` | 2 | 1 | 1 | b.example |  | out: no route to host |" in text
    assert "coder on builder" in text
