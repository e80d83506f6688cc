"""What votes decide, which are still wanted, and what becomes of findings."""

from dataclasses import replace

import pytest

from fleet.config.load import default_config
from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.plan import Criterion
from fleet.core.state.subtasks import Attempt
from fleet.core.verdicts.suspicious_changes import parse_patch
from fleet.features.reviews.reviews import ReviewCheck, reviews_of, settled_by, verdict
from fleet.features.reviews.settings import Reviewer
from fleet.read.question_view import reviews_view
from tests.fleet.core.pretend import subtask
from tests.fleet.core.story import Story, plan_of

SETTINGS = default_config().of(Reviewer)
FINDING = f.ReviewFinding(file="a.py", line=1, problem="wrong", text="bad()")


def vote(number: int, *findings: f.ReviewFinding, criterion: str = "fine") -> f.Vote:
    return f.Vote(criterion=criterion, focus="faults", vote=number, model="m", findings=findings)


def attempt(*votes: f.Vote) -> Attempt:
    made = Attempt(number=1, worker="coder", model="w", base=Sha("b"), strategy="first", guidance="", started_at=0)
    return replace(made, votes=votes)


def review(**more: int) -> ReviewCheck:
    return ReviewCheck.of(Criterion(criterion="fine", review="faults", **more), 1)


@pytest.mark.parametrize(
    ("asked", "decides"),
    [({}, (1, 1)), ({"votes": 3}, (3, 2)), ({"votes": 3, "threshold": 3}, (3, 3)), ({"threshold": 2}, (2, 2))],
)
def test_more_than_half_of_the_votes_have_to_find_nothing(asked: dict[str, int], decides: tuple[int, int]) -> None:
    made = review(**asked)
    assert (made.votes, made.threshold) == decides


def test_votes_decide_as_soon_as_the_others_can_change_nothing() -> None:
    three = review(votes=3)
    assert three.passes(attempt()) is None
    assert three.passes(attempt(vote(1))) is None
    assert three.passes(attempt(vote(1), vote(2, FINDING))) is None
    assert three.passes(attempt(vote(1), vote(3))) is True
    assert three.passes(attempt(vote(1, FINDING), vote(2, FINDING))) is False
    assert review(votes=3, threshold=3).passes(attempt(vote(1, FINDING))) is False


def test_as_few_votes_are_asked_for_as_may_decide() -> None:
    three = review(votes=3)
    assert three.wanted(attempt(), at_once=False) == (1, 2)
    assert three.wanted(attempt(), at_once=True) == (1, 2, 3)
    assert three.wanted(attempt(vote(1), vote(2, FINDING)), at_once=False) == (3,)
    assert three.wanted(attempt(vote(1), vote(2)), at_once=True) == ()


def test_a_vote_counts_only_for_what_it_was_asked_about() -> None:
    other = vote(1).model_copy(update={"focus": "something else"})
    assert review().passes(attempt(other, vote(1, criterion="another"))) is None


def test_a_verdict_names_each_place_once_and_what_was_discarded() -> None:
    both = (vote(1, FINDING), vote(2, FINDING).model_copy(update={"discarded": 2}), vote(3))
    check = verdict(review(votes=3), attempt(*both))
    assert (check.passed, check.review, check.command) == (False, True, "review by m")
    assert check.output.splitlines() == [
        "1 of 3 votes have no findings (2 required)",
        "a.py:1: wrong",
        "(2 discarded, because they don't name a line of the change)",
    ]


def test_the_configuration_can_have_every_change_reviewed() -> None:
    spec = subtask("a").model_copy(update={"acceptance": (Criterion(criterion="fine", review="faults"),)})
    found = reviews_of(spec, SETTINGS.model_copy(update={"look_for": "holes", "votes": 3}))
    assert [(each.criterion, each.focus, each.votes, each.threshold) for each in found] == [
        ("fine", "faults", 3, 2),
        ("reviewed", "holes", 3, 2),
    ]
    assert reviews_of(subtask("b"), SETTINGS) == ()


# ---- what becomes of findings ---------------------------------------------------------------------------------------


def patch(*lines: str, file: str = "a.py") -> str:
    old, new = (sum(line[0] in signs for line in lines) for signs in ("- ", "+ "))
    head = f"diff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}\n@@ -1,{old} +1,{new} @@\n"
    return head + "\n".join(lines) + "\n"


def reviewed(*subtasks: str, sign: str = "+") -> Story:
    """A run in which the first attempt at the first subtask has a finding."""
    story = Story(plan=plan_of(*subtasks))
    finding = FINDING.model_copy(update={"sign": sign})
    story.happens(f.ReviewVoted(at=story.now, subtask=subtasks[0], number=1, votes=(vote(1, finding),)))
    return story


@pytest.mark.parametrize(
    ("sign", "lines", "result"),
    [
        ("+", ["+bad()"], "ignored"),
        ("+", ["+good()"], "fixed"),
        ("-", ["-bad()"], "ignored"),
        ("-", ["+good()"], "fixed"),
        (" ", ["+more()", " bad()"], "ignored"),
        (" ", ["-bad()", "+good()"], "fixed"),
    ],
)
def test_a_finding_is_mended_if_the_change_that_passes_is_without_its_line(
    sign: str, lines: list[str], result: str
) -> None:
    story = reviewed("a", sign=sign)
    [settled] = settled_by(story.state, SubtaskId("a"), parse_patch(patch(*lines)))
    assert (settled.subtask, settled.attempt, settled.result) == ("a", 1, result)


def settle(story: Story, id_: str, *lines: str) -> None:
    """A subtask passes with these lines as its change, and lands."""
    settled = tuple(settled_by(story.state, SubtaskId(id_), parse_patch(patch(*lines))))
    if settled:
        story.happens(f.FindingsSettled(at=story.now, subtask=id_, number=1, settled=settled))
    story.landed(id_)


def test_an_ignored_finding_whose_line_a_later_subtask_removes_was_right_after_all() -> None:
    story = reviewed("a", "b needs a")
    settle(story, "a", "+bad()")
    view = reviews_view(story.state)
    assert view is not None
    assert (view.findings, view.ignored, view.false_alarm_rate) == (1, 1, 1.0)
    settle(story, "b", "-bad()", "+good()")
    view = reviews_view(story.state)
    assert view is not None
    assert (view.ignored, view.reverted, view.false_alarm_rate) == (0, 1, 0.0)
    assert view.latest[0].outcome == "reverted"
    assert [*settled_by(story.state, SubtaskId("b"), parse_patch(patch("-bad()")))] == []


def test_the_same_line_in_another_file_says_nothing() -> None:
    story = reviewed("a", "b needs a")
    settle(story, "a", "+bad()")
    assert [*settled_by(story.state, SubtaskId("b"), parse_patch(patch("-bad()", file="b.py")))] == []


def test_a_run_without_reviews_has_none_to_show() -> None:
    assert reviews_view(Story(plan=plan_of("a")).state) is None
