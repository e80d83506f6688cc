"""The chain of each landed commit by the facts of a run, and what an audit finds when git differs from them."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.features.audit.audit import Audit, AuditedBranch, AuditedCommit, audit_run, read_facts
from fleet.features.audit.audit_view import audit_view
from fleet.features.audit.verbs import audit_lines
from fleet.read.base_view import dump_view
from tests.fleet.core.story import Story

SHAS = {"a": Sha("a" * 40), "b": Sha("b" * 40)}
TREES = {"a": Sha("1" * 40), "b": Sha("2" * 40)}
GATE = f.CheckRun(criterion="the gate", command="make check", passed=True, output="12 passed\n")


def landing(story: Story, *ids: str) -> f.BatchTested:
    """The batch that is open, green: every tree was tested."""
    [probe] = story.state.landing.open_batches
    members = [
        member.model_copy(update={"commit": SHAS[member.subtask], "tree": TREES[member.subtask], "tested": True})
        for member in probe.members
    ]
    assert [member.subtask for member in members] == list(ids)
    *below, last = [GATE.model_copy(update={"tree": member.tree}) for member in members]
    tip = members[-1].commit
    return f.BatchTested(
        at=5.0, number=probe.number, tip=tip, landed=tuple(members), checks=(last,), proofs=tuple(below)
    )


def done(story: Story, id_: str) -> None:
    number = story.current(id_).number
    check = f.CheckRun(criterion="it works", command=f"check {id_}", passed=True, tree="c" * 40)
    report = f.Report(status="done", summary="did it")
    story.happens(
        f.WorkerStarted(at=1.0, subtask=id_, number=number),
        f.AttemptCommitted(at=2.0, subtask=id_, number=number, commit=f"c-{id_}", paths=(id_,), report=report),
        f.AttemptVerified(at=3.0, subtask=id_, number=number, checks=(check,)),
    )


def story_of(*, review: bool = False) -> Story:
    """`a` fails once and is tried again; `b` lands with it."""
    story = Story(policy=Policy(review=review, slots=1))
    story.planner_plans("a", "b")
    if review:
        story.happens(f.PlanApproved(at=0.5, version=1, by="ada"))
    story.model_is_called("a")
    story.model_is_called("b")
    story.attempt_fails("a")
    story.planner_answers(retry=[{"id": "a", "guidance": "look again"}], assessment="it was a slip")
    story.model_is_called("a")
    done(story, "a")
    return story


@pytest.fixture
def story() -> Story:
    story = story_of()
    story.happens(landing(story, "a"))
    done(story, "b")
    story.happens(landing(story, "b"))
    story.is_published()
    return story


def commit(id_: str, below: str, attempt: int, **more: Any) -> AuditedCommit:
    made = AuditedCommit(
        id=SHAS[id_],
        tree=TREES[id_],
        parents=(Sha(below),),
        subject=f"Build {id_}",
        run=RunId("r"),
        subtask=SubtaskId(id_),
        attempt=attempt,
        worker="coder",
        model="m",
    )
    return replace(made, **more)


A, B = commit("a", "base", 2), commit("b", SHAS["a"], 1)


def audit(facts: list[f.Fact], *commits: AuditedCommit, **more: Any) -> Audit:
    account = read_facts(enumerate(facts, 1))
    assert account.state is not None
    tip = commits[-1].id if commits else None
    return audit_run(account, account.state, AuditedBranch(**{"tip": tip, "commits": commits, **more}))


def problems(result: Audit) -> list[str]:
    text = [*result.problems, *(problem for entry in result.entries for problem in entry.problems)]
    assert result.holds == (not text)
    shown = "\n".join(audit_lines(audit_view(result)))
    assert shown.count("PROBLEM") - shown.count("marked PROBLEM") == len(text)
    return text


def without(facts: list[f.Fact], kind: type[f.TimedFact]) -> list[f.Fact]:
    return [fact for fact in facts if not isinstance(fact, kind)]


def changed(facts: list[f.Fact], kind: type[f.TimedFact], **update: Any) -> list[f.Fact]:
    """With the last fact of a kind changed."""
    last = max(index for index, fact in enumerate(facts) if isinstance(fact, kind))
    return [*facts[:last], facts[last].model_copy(update=update), *facts[last + 1 :]]


def test_each_commit_has_its_chain_from_the_epic_to_its_landing(story: Story) -> None:
    result = audit(story.facts, A, B)
    assert problems(result) == []
    view = dump_view(audit_view(result))
    assert (view["epic"], view["ok"], view["not_published"]) == ("the epic", True, [])
    first, second = view["commits"]
    assert [version["why"] for version in first["plan"]] == ["so it is", "it was a slip"]
    assert [version["version"] for version in second["plan"]] == [1]
    assert first["subtask"]["id"] == "a"
    tries = [(a["number"], a["strategy"], a["model"], a["landed"], a["guidance"]) for a in first["attempts"]]
    assert tries == [(1, "first", "m", None, ""), (2, "alternative", "m", A.id, "look again")]
    assert first["attempts"][0]["failure"]["kind"] == "check"
    assert [check["output"] for check in first["landing"]["checks"]] == ["12 passed\n"]
    assert first["landing"]["tree"] == TREES["a"]
    unknown = {"version": None, "by": None, "at": None, "automatic": None}
    assert first["approval"] == {"required": False, **unknown, "plan_version": 2, "broken_rules": [], "rejections": []}
    shown = "\n".join(audit_lines(audit_view(result)))
    assert "not reviewed" in shown
    assert "| 12 passed" in shown


def test_commits_that_land_together_each_have_the_checks_of_their_own_tree() -> None:
    story = story_of()
    done(story, "b")  # while `a` is tested alone
    [probe] = story.state.landing.open_batches
    assert [member.subtask for member in probe.members] == ["a"]
    story.happens(f.BatchTested(at=4.0, number=probe.number, tip="base"))
    story.happens(landing(story, "a", "b"))
    story.is_published()
    result = audit(story.facts, A, B)
    assert problems(result) == []
    trees = [[check["tree"] for check in one["landing"]["checks"]] for one in dump_view(audit_view(result))["commits"]]
    assert trees == [[TREES["a"]], [TREES["b"]]]
    bare = changed(story.facts, f.BatchTested, proofs=())
    assert problems(audit(bare, A, B)) == [
        "the journal marks the tree 111111111111 as tested, but its check is missing"
    ]


def test_who_approved_which_version_is_shown_and_its_absence_is_found() -> None:
    story = story_of(review=True)
    story.happens(landing(story, "a"))
    story.is_published()
    result = audit(story.facts, A)
    assert problems(result) == []
    assert dump_view(audit_view(result))["commits"][0]["approval"] == {
        "required": True,
        "version": 1,
        "by": "ada",
        "at": 0.5,
        "automatic": False,
        "plan_version": 2,
        "broken_rules": [],
        "rejections": [],
    }
    assert "version 1 by ada" in "\n".join(audit_lines(audit_view(result)))
    assert problems(audit(without(story.facts, f.PlanApproved), A)) == [
        "attempt 2 started before the plan was approved",
    ]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"run": "other"}, "its trailer Fleet-Run is other, but r in the journal"),
        ({"subtask": "b"}, "its trailer Fleet-Task is b, but a in the journal"),
        ({"attempt": 1}, "its trailer Fleet-Attempt is 1, but 2 in the journal"),
        ({"worker": "writer"}, "its trailer Fleet-Worker is writer, but coder in the journal"),
        ({"model": "another"}, "its trailer Assisted-by is another, but m in the journal"),
        ({"model": None}, "its trailer Assisted-by is missing, but m in the journal"),
        ({"tree": "9" * 40}, "its tree is 999999999999, but the tested and landed tree is 111111111111"),
        ({"parents": ("base", "f" * 40)}, "its parents are base, ffffffffffff, expected base"),
        ({"sound": False}, "its content does not match its id"),
    ],
)
def test_a_commit_that_contradicts_the_journal_is_found(story: Story, more: dict[str, Any], problem: str) -> None:
    assert problems(audit(story.facts, replace(A, **more), B)) == [problem]


def test_a_dated_name_of_a_model_is_the_same_model(story: Story) -> None:
    facts = [
        f_.model_copy(update={"model": "m-20261001"}) if isinstance(f_, f.ModelCalled) else f_ for f_ in story.facts
    ]
    assert problems(audit(facts, A, B)) == []


def test_an_attempt_that_landed_as_it_was_made_was_checked_on_that_very_tree(story: Story) -> None:
    facts = [
        f_.model_copy(update={"commit": SHAS["b"]}) if isinstance(f_, f.AttemptCommitted) else f_ for f_ in story.facts
    ]
    assert problems(audit(facts, A, B)) == ["its checks ran on the tree cccccccccccc, not on its tree 222222222222"]


def test_commits_that_did_not_land_or_are_lost_are_found(story: Story) -> None:
    foreign = AuditedCommit(Sha("d" * 40), Sha("3" * 40), (SHAS["b"],), "Mine", None, None, None, None, None)
    assert problems(audit(story.facts, A, B, foreign)) == [
        "does not belong to this run: it is not in the journal and lacks a trailer of the run"
    ]
    rewritten = replace(B, id=Sha("e" * 40))
    assert problems(audit(story.facts, A, rewritten)) == [
        "claims to be b, attempt 1, which landed as bbbbbbbbbbbb: it was rewritten or forged",
        "landed and published as bbbbbbbbbbbb, but is not on fleet/r",
    ]
    assert problems(audit(story.facts, A)) == ["landed and published as bbbbbbbbbbbb, but is not on fleet/r"]
    assert problems(audit(story.facts, A, B, tip=None)) == [
        "no branch fleet/r exists, but according to the journal, its tip is bbbbbbbbbbbb"
    ]
    assert any("is not in the repository" in problem for problem in problems(audit(story.facts, has_base=False)))


def test_a_journal_that_was_cut_or_changed_is_seen(story: Story) -> None:
    numbered = list(enumerate(story.facts, 1))
    account = read_facts([*numbered[:2], *numbered[4:]])
    assert account.problems[0] == "facts 3 to 4 are missing from the journal"
    cut = read_facts(enumerate(without(story.facts, f.PlanRevised), 1))
    assert "contradicts earlier facts" in cut.problems[0]
    unverified = [fact for fact in story.facts if not (isinstance(fact, f.AttemptVerified) and fact.subtask == "b")]
    assert "attempt 1 landed, but the journal does not record that its checks passed" in problems(
        audit(unverified, A, B)
    )
    twice = [*story.facts, *story.facts_of(f.BatchTested)[-1:]]
    assert "the journal records the same commit as landed twice" in problems(audit(twice, A, B))


def test_a_red_check_of_what_landed_is_seen_unless_it_was_red_before_anything_was_done(story: Story) -> None:
    red = GATE.model_copy(update={"passed": False, "tree": TREES["b"]})
    facts = changed(story.facts, f.BatchTested, checks=(red,))
    assert problems(audit(facts, A, B)) == ["a check of the landed tree failed: make check"]
    always = [
        fact.model_copy(update={"checks": tuple(run.model_copy(update={"passed": False}) for run in fact.checks)})
        if isinstance(fact, f.BatchTested)
        else fact
        for fact in story.facts
    ]
    assert len(problems(audit(always, A, B))) == 2
    base = f.BaseChecked(at=0.0, base="base", checks=(red,))
    assert problems(audit([always[0], base, *always[1:]], A, B)) == []
    own = f.CheckRun(criterion="it works", command="check b", passed=False, tree="c" * 40)
    facts = changed(story.facts, f.AttemptVerified, checks=(own,))
    assert problems(audit(facts, A, B)) == ["attempt 1 landed, but one of its checks failed: check b"]


def test_what_landed_and_is_not_published_yet_is_listed(story: Story) -> None:
    facts = without(story.facts, f.Published)
    result = audit(facts)
    assert problems(result) == []
    assert dump_view(audit_view(result))["not_published"] == [SHAS["a"], SHAS["b"]]
    assert problems(audit(facts, A)) == []


def test_what_a_crash_lost_is_mentioned_and_is_not_a_problem(story: Story) -> None:
    [*_, tested] = story.facts_of(f.BatchTested)
    lost = tuple(member.model_copy(update={"tree": ""}) for member in tested.landed)
    found = audit(changed(story.facts, f.BatchTested, landed=lost, checks=()), A, B)
    assert problems(found) == []
    assert list(audit_lines(audit_view(found)))[-1].endswith("; 1 without a record of tests")


def test_text_of_a_model_steers_no_terminal(story: Story) -> None:
    hostile = "\x1b]52;c;aGk=\x07\x1b[2J"
    result = audit(story.facts, replace(A, subject=hostile, model=hostile), B)
    assert not any("\x1b" in line or "\x07" in line for line in audit_lines(audit_view(result)))


@pytest.mark.parametrize(
    ("commits", "more", "problem"),
    [
        ((replace(A, sound=False), B), {}, "its content does not match its id"),
        ((A, B), {"has_base": False}, "the base base is not in the repository"),
        ((replace(A, subtask=SubtaskId("c")), B), {}, "its trailer Fleet-Task is c"),
        ((A, replace(B, id=Sha("e" * 40))), {}, "it was rewritten or forged"),
        ((A, B, commit("b", SHAS["b"], 7, id="e" * 40)), {}, "which did not land according to the journal"),
    ],
)
def test_what_git_says_otherwise_is_seen(
    story: Story, commits: tuple[AuditedCommit, ...], more: dict[str, Any], problem: str
) -> None:
    assert any(problem in seen for seen in problems(audit(story.facts, *commits, **more)))


def test_a_landing_without_a_tested_tree_is_seen(story: Story) -> None:
    bare = changed(story.facts, f.BatchTested, checks=(), proofs=())
    assert any("as tested, but its check is missing" in seen for seen in problems(audit(bare, A, B)))


def test_findings_of_reviews_are_in_the_chain_with_what_became_of_them() -> None:
    story = story_of()
    first, second = (
        f.ReviewFinding(file="a.py", line=line, sign="+", text="bad()", problem="is \x1b[2J bad") for line in (3, 9)
    )
    vote = f.Vote(criterion="look", focus="faults", vote=1, model="critic", findings=(first, second))
    story.happens(landing(story, "a"), f.ReviewVoted(at=4.0, subtask="b", number=1, votes=(vote, vote)))
    done(story, "b")
    settled = f.FindingSettled(subtask="b", attempt=1, finding=first, result="fixed")
    story.happens(f.FindingsSettled(at=4.0, subtask="b", number=1, settled=(settled,)))
    story.happens(landing(story, "b"))
    story.is_published()
    view = audit_view(audit(story.facts, A, B))
    assert view.ok
    assert view.commits[0].findings == ()
    assert [(each.line, each.attempt, each.outcome) for each in view.commits[1].findings or ()] == [
        (3, 1, "fixed"),
        (9, 1, None),
    ]
    lines = [line for line in audit_lines(view) if line.startswith("  finding")]
    assert len(lines) == 2
    assert lines[0].startswith("  finding    a.py:3: is ")
    assert lines[0].endswith("(attempt 1, fixed)")
    assert lines[1].endswith("(attempt 1, open)")
    assert "\x1b" not in "".join(lines)
