"""The runs that the corpus began with. Their journals are kept as files: a change here changes no file that exists."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from tests.corpus.stories import (
    aborted,
    approved_again,
    approved_in_part,
    areas_open,
    asked,
    base_is_red,
    bisected,
    budget_is_used_up,
    cancelled,
    crashed,
    drained,
    empty,
    from_an_issue,
    hostile,
    hostile_names,
    incidents,
    machines,
    partial,
    paused,
    pretended,
    refused,
    rehearsal,
    relanding,
    reviews,
    rolled_back,
    rungs,
    service_is_limited,
    standings,
    told_what_to_do,
    unproved,
    waits_for_an_answer,
    wide_ended,
    work_is_lost,
)
from tests.dashboards.hostile import HOSTILE, every_fact
from tests.dashboards.stories import approval_story, busy_story, ended_story, nodes_story, wide_story

GOLDEN = Path(__file__).parents[1] / "fleet" / "core" / "journals"
MARKUP = '"><script>alert(1)</script>`|$(touch x)](javascript:x)[bold]<!--{{ 7*7 }}\\ -->*_# @here'
BIDI = (
    "\u202e\u2067\u0627\u0644\u0648\u0642\u062a\u0301\u0301 \U0001f469\u200d"
    "\U0001f4bb \uff57\uff49\uff44\uff45 \u6f22\u5b57\u3000\xad\ufe0f"
)
HUGE = "word " * 300 + "x" * 1500


@dataclass(frozen=True)
class Told:
    """A run as it is kept."""

    about: str
    lines: Iterable[str]
    faces: Sequence[str] = ()
    """Those that it is recorded with besides the ones of each run."""
    alive: bool = False


def _told(about: str, facts: Iterable[f.Fact], faces: str = "", *, alive: bool = False) -> Told:
    return Told(about, [fact.model_dump_json() for fact in facts], faces.split(), alive)


def _golden(name: str, about: str, faces: str) -> Told:
    return Told(about, (GOLDEN / name).read_text(encoding="utf-8").splitlines(), faces.split())


STRICT = Policy(workers=3, max_attempts=2, max_planner_calls=12, batch=4, answer_wait_s=30)

STORIES: Mapping[str, Callable[[], Told]] = {
    "golden-v1": lambda: _golden("v1.jsonl", "every kind of fact of the first version", "facts report trace metrics"),
    "golden-reviews": lambda: _golden("reviews.jsonl", "old verdicts on a plan", "facts decisions"),
    "every-fact": lambda: _told("every kind of fact there is", every_fact(), "facts report trace metrics web"),
    "busy": lambda: _told(
        "one of everything that a page can show",
        busy_story().facts,
        "report trace metrics notifications decisions terminal web",
        alive=True,
    ),
    "landed": lambda: _told(
        "all of it landed, with a recovery", ended_story().facts, "report trace notifications decisions terminal web"
    ),
    "issue": lambda: _told("the goal is an issue of a forge", from_an_issue(), "report"),
    "nodes": lambda: _told(
        "a node at work, one drained, one out", nodes_story().facts, "report trace metrics terminal web", alive=True
    ),
    "wide": lambda: _told("300 subtasks, of which 60 are under way", wide_story().facts, "terminal report", alive=True),
    "wide-landed": lambda: _told("251 subtasks, all of them landed", wide_ended().facts, "terminal"),
    "approval": lambda: _told(
        "a plan waits for approval", approval_story().facts, "metrics notifications decisions terminal web", alive=True
    ),
    "approval-part": lambda: _told(
        "a part is approved, a part is rejected", approved_in_part().facts, "notifications decisions web", alive=True
    ),
    "areas": lambda: _told("an area with a planner of its own", areas_open().facts, "metrics terminal web", alive=True),
    "areas-pretended": lambda: _told(
        "areas within areas, with trouble",
        pretended(21, Policy(max_areas=6, area_depth=2, workers=4), areas=0.5),
        "report",
    ),
    "rungs": lambda: _told("a subtask climbs its ladder", rungs().facts, "report"),
    "model-reviews": lambda: _told(
        "reviews by models, with a finding", reviews().facts, "report trace metrics terminal web", alive=True
    ),
    "relanding": lambda: _told("a result is landed again", relanding().facts, "metrics", alive=True),
    "rehearsal": lambda: _told("history is done again", rehearsal(), "report", alive=True),
    "crashed": lambda: _told(
        "an engine died twice", crashed().facts, "report metrics notifications decisions terminal web"
    ),
    "refused": lambda: _told(
        "the base is red, so that nothing began", refused().facts, "report notifications terminal web"
    ),
    "red-base": lambda: _told("the base is red, and that is allowed", base_is_red().facts, alive=True),
    "cancelled": lambda: _told("cancelled by a person", cancelled().facts, "metrics notifications"),
    "paused": lambda: _told("paused, with other limits", paused().facts, "decisions", alive=True),
    "drained": lambda: _told("left in good order", drained().facts),
    "questions": lambda: _told(
        "questions, answered and open", asked().facts, "report notifications decisions terminal web", alive=True
    ),
    "limited": lambda: _told(
        "the model service limits calls", service_is_limited().facts, "metrics terminal", alive=True
    ),
    "budget": lambda: _told("the budget is used up", budget_is_used_up().facts, "notifications", alive=True),
    "rollback": lambda: _told("a deployment is undone", rolled_back().facts, "report terminal", alive=True),
    "instructions": lambda: _told("agents are told what to do", told_what_to_do().facts, "decisions", alive=True),
    "lost-work": lambda: _told("landed work is lost and done again", work_is_lost().facts),
    "empty": lambda: _told("nothing but its beginning", empty(), "report terminal web"),
    "trouble": lambda: _told(
        "much fails, and it ends in part",
        pretended(5, STRICT, trouble=0.5),
        "report trace metrics notifications decisions terminal web",
    ),
    "trouble-landed": lambda: _told(
        "much fails, and all of it lands", pretended(8, Policy(workers=4, batch=4), trouble=0.25)
    ),
    "incidents": lambda: _told(
        "each way in which an incident goes on", incidents().facts, "report metrics trace terminal web", alive=True
    ),
    "standings": lambda: _told("a subtask in every standing", standings().facts, "metrics terminal web", alive=True),
    "bisected": lambda: _told(
        "a conflict, a flake and a red batch", bisected().facts, "report metrics terminal web", alive=True
    ),
    "waits": lambda: _told(
        "nothing can be done before an answer",
        waits_for_an_answer().facts,
        "metrics notifications terminal web",
        alive=True,
    ),
    "machines": lambda: _told("two nodes, labels, one is lost", machines().facts, "report metrics web", alive=True),
    "aborted": lambda: _told("a failure ends the run", aborted().facts, "report notifications"),
    "partial": lambda: _told("no one answered", partial().facts, "report notifications web"),
    "unproved": lambda: _told(
        "no sandbox, no gate, a step without a commit", unproved(), "report metrics notifications web"
    ),
    "approved-again": lambda: _told(
        "rejected, revised, approved, revised", approved_again().facts, "report decisions terminal web", alive=True
    ),
    "hostile": lambda: _told(
        "every text steers a terminal", hostile_names(), "report notifications terminal web", alive=True
    ),
    "hostile-facts": lambda: _told(
        "every kind of fact, every text steers a terminal", hostile(every_fact(), HOSTILE), "facts report"
    ),
    "hostile-markup": lambda: _told(
        "every text is markup",
        hostile(busy_story().facts, MARKUP),
        "report trace notifications metrics web",
        alive=True,
    ),
    "hostile-bidi": lambda: _told(
        "every text runs both ways", hostile(approval_story().facts, BIDI), "terminal decisions", alive=True
    ),
    "hostile-huge": lambda: _told("every text is huge", hostile(ended_story().facts, HUGE), "terminal"),
}
