"""Revisions: each operation, each refusal, and that none ever leaves a plan that does not hold together."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import Plan, find_cycle
from fleet.core.plans.revision import PlanContext, Revision, SubtaskStatuses, apply, plan_problems, revise_plan
from tests.effort import examples
from tests.fleet.core.pretend import subtask
from tests.fleet.core.story import plan_of

API, DOCS = SubtaskId("api"), SubtaskId("docs")

PLAN = plan_of("schema", "api needs schema", "web needs api", "docs")


def revision(**fields: Any) -> Revision:
    return Revision(assessment="so it is", **fields)


def statuses(plan: Plan = PLAN, **changes: Any) -> SubtaskStatuses:
    everything = frozenset(plan.ids)
    return SubtaskStatuses(**({"open": everything, "failed": everything} | changes))


def revised(change: Revision, where: SubtaskStatuses | None = None, plan: Plan = PLAN) -> Plan:
    after = revise_plan(plan, change, where or statuses(plan))
    assert isinstance(after, Plan), after
    return after


def refused(change: Revision, where: SubtaskStatuses | None = None, known: PlanContext | None = None) -> dict[str, str]:
    problems = revise_plan(PLAN, change, where or statuses(), known)
    assert not isinstance(problems, Plan)
    return {problem.path: problem.message for problem in problems}


def needs(plan: Plan) -> dict[SubtaskId, tuple[SubtaskId, ...]]:
    return {subtask.id: subtask.depends_on for subtask in plan.subtasks}


# ---- each operation --------------------------------------------------------------------------------------------------


def test_added_subtasks_come_last_and_make_a_new_version() -> None:
    after = revised(revision(add=[subtask("cli", "web")]))
    assert after.ids == (*PLAN.ids, "cli")
    assert after.version == PLAN.version + 1


def test_the_first_revision_may_leave_the_plan_empty() -> None:
    assert revised(revision(ask=[{"question": "which database?"}]), SubtaskStatuses(), Plan()) == Plan()


def test_a_revised_subtask_changes_what_is_given_and_keeps_the_rest() -> None:
    change = {"id": "api", "goal": "Serve it.", "touches": ["api/**"], "depends_on": [], "risk": "high", "model": None}
    after = revised(revision(revise=[change])).subtask(API)
    before = PLAN.subtask(API)
    assert before is not None
    assert after == before.model_copy(
        update={"goal": "Serve it.", "touches": ("api/**",), "depends_on": (), "risk": "high"}
    )


def test_a_retry_may_choose_another_worker_or_model_and_else_keeps_its_own() -> None:
    after = revised(revision(retry=[{"id": "api", "guidance": "again", "model": "opus"}, {"id": "docs"}]))
    api, docs = after.subtask(API), after.subtask(DOCS)
    assert api is not None
    assert (api.worker, api.model) == ("coder", "opus")
    assert docs == PLAN.subtask(DOCS)


def test_a_subtask_may_be_revised_and_retried_at_once() -> None:
    both = revision(revise=[{"id": "api", "goal": "Smaller."}], retry=[{"id": "api", "worker": "docs"}])
    api = revised(both).subtask(API)
    assert api is not None
    assert (api.goal, api.worker) == ("Smaller.", "docs")


def test_dependents_of_a_split_wait_for_all_its_parts() -> None:
    parts = [subtask("api-read"), subtask("api-write", "api-read")]
    after = revised(revision(split=[{"id": "api", "why": "too large", "into": parts}], add=[subtask("cli", "api")]))
    assert needs(after) == {
        "schema": (),
        "api": ("schema",),
        "web": ("api-read", "api-write"),
        "docs": (),
        "api-read": ("schema",),
        "api-write": ("api-read", "schema"),
        "cli": ("api-read", "api-write"),
    }


def test_parts_may_need_the_parts_of_another_split() -> None:
    splits = [
        {"id": "schema", "why": "w", "into": [subtask("tables"), subtask("indexes", "tables")]},
        {"id": "api", "why": "w", "into": [subtask("api-all")]},
    ]
    after = needs(revised(revision(split=splits)))
    assert after[SubtaskId("api-all")] == ("tables", "indexes")
    assert after[SubtaskId("web")] == ("api-all",)


def test_a_dropped_subtask_stays_in_the_plan() -> None:
    after = revised(revision(drop=[{"id": "docs", "why": "later"}]))
    assert after.ids == PLAN.ids
    assert after.version == PLAN.version + 1


def test_a_branch_of_the_plan_may_be_dropped_as_a_whole() -> None:
    revised(revision(drop=[{"id": "api", "why": "w"}, {"id": "web", "why": "w"}]))


def test_who_depended_on_a_dropped_subtask_may_be_revised_at_once() -> None:
    drop, change = {"id": "api", "why": "w"}, {"id": "web", "depends_on": ["schema"]}
    assert needs(revised(revision(drop=[drop], revise=[change])))[SubtaskId("web")] == ("schema",)


def test_questions_and_an_end_change_no_version() -> None:
    over = SubtaskStatuses(open=frozenset())
    assert revised(revision(ask=[{"question": "why?"}]), over) == PLAN
    assert revised(revision(finished=True, synthesis="all of it"), over) == PLAN


def test_the_end_may_drop_what_is_left() -> None:
    left = statuses(open=frozenset({"docs"}))
    revised(revision(drop=[{"id": "docs", "why": "not needed"}], finished=True, synthesis="done"), left)


# ---- each refusal ----------------------------------------------------------------------------------------------------

PART = [subtask("part")]


@pytest.mark.parametrize(
    ("verb", "item"),
    [
        ("revise", {"goal": "x"}),
        ("split", {"why": "w", "into": PART}),
        ("retry", {"guidance": "x"}),
        ("drop", {"why": "w"}),
    ],
)
class TestTargets:
    def test_an_unknown_one_is_refused_with_the_nearest_name(self, verb: str, item: dict[str, Any]) -> None:
        problems = refused(revision(**{verb: [{"id": "dcos", **item}]}))
        assert problems[f"{verb}[0].id"] == "unknown subtask 'dcos'; did you mean 'docs'?"

    def test_one_that_is_done_with_is_refused(self, verb: str, item: dict[str, Any]) -> None:
        done = statuses(open=frozenset(PLAN.ids) - {"docs"})
        problems = refused(revision(**{verb: [{"id": "docs", **item}]}), done)
        assert problems == {f"{verb}[0].id": "'docs' is closed and can't be changed"}

    def test_one_that_is_being_worked_on_is_refused(self, verb: str, item: dict[str, Any]) -> None:
        busy = statuses(busy=frozenset({"docs"}))
        problems = refused(revision(**{verb: [{"id": "docs", **item}]}), busy)
        assert problems == {f"{verb}[0].id": "'docs' is in progress. Wait for its report"}

    def test_the_same_one_twice_is_refused(self, verb: str, item: dict[str, Any]) -> None:
        other = {"into": [subtask("other")]} if verb == "split" else {}
        problems = refused(revision(**{verb: [{"id": "docs", **item}, {"id": "docs", **item, **other}]}))
        assert problems == {f"{verb}[1].id": f"'docs' is also in '{verb}[0]'; choose one"}


def test_what_has_not_failed_can_not_be_retried() -> None:
    problems = refused(revision(retry=[{"id": "docs"}]), statuses(failed=frozenset({"api"})))
    assert problems == {"retry[0].id": "'docs' has not failed and can't be retried"}


def test_splits_of_splits_have_an_end() -> None:
    deep = statuses(depth={"docs": 3}, max_depth=3)
    problems = refused(revision(split=[{"id": "docs", "why": "w", "into": PART}]), deep)
    assert problems == {"split[0].id": "'docs' is already 3 splits deep and can't be split again"}


@pytest.mark.parametrize(
    ("first", "second"), [("revise", "split"), ("revise", "drop"), ("split", "drop"), ("split", "retry")]
)
def test_two_ways_at_once_are_refused(first: str, second: str) -> None:
    items: dict[str, Any] = {
        "revise": {"goal": "x"},
        "split": {"why": "w", "into": PART},
        "retry": {},
        "drop": {"why": "w"},
    }
    problems = refused(revision(**{verb: [{"id": "docs", **items[verb]}] for verb in (first, second)}))
    assert problems[f"{second}[0].id"] == f"'docs' is also in '{first}[0]'; choose one"


def test_dropping_what_others_need_is_refused_with_their_names() -> None:
    assert refused(revision(drop=[{"id": "api", "why": "w"}])) == {
        "drop": "'web' depends on 'api': revise it, or drop it too"
    }


def test_nothing_new_may_wait_for_what_is_gone() -> None:
    problems = refused(revision(add=[subtask("cli", "docs")]), statuses(split_or_dropped=frozenset({"docs"})))
    assert problems == {"depends_on": "'cli' depends on 'docs', which was split or dropped earlier"}


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"synthesis": "s"}, "finished", "is not allowed while subtasks are open: api, docs"),
        ({"synthesis": " "}, "synthesis", "is required"),
        ({"synthesis": "s", "add": [subtask("new")]}, "finished", "is not allowed while subtasks are open"),
        ({"synthesis": "s", "split": [{"id": "api", "why": "w", "into": PART}]}, "finished", "is not allowed"),
    ],
)
def test_the_end_is_refused_while_something_is_open(fields: dict[str, Any], path: str, message: str) -> None:
    assert message in refused(revision(finished=True, **fields), statuses(open=frozenset({"api", "docs"})))[path]


def test_with_nothing_else_open_what_was_just_added_still_is() -> None:
    problems = refused(revision(finished=True, synthesis="s", add=[subtask("n")]), SubtaskStatuses())
    assert problems == {"finished": "is not allowed while subtasks are open: those just added"}


def test_a_question_about_an_unknown_subtask_is_refused() -> None:
    assert refused(revision(ask=[{"about": "ap", "question": "how?"}])) == {
        "ask[0].about": "unknown subtask 'ap'; did you mean 'api'?"
    }


def test_every_problem_is_reported_at_once_with_its_place_in_the_revision() -> None:
    broken = revision(
        add=[subtask("cli", "missing"), subtask("docs")],
        revise=[{"id": "web", "acceptance": []}],
        split=[{"id": "api", "why": "w", "into": [subtask("part").model_copy(update={"goal": " "})]}],
        retry=[{"id": "nothing"}],
    )
    assert set(refused(broken, known=PlanContext(max_subtasks=2))) == {
        "add[0].depends_on[0]",
        "revise[0].acceptance",
        "split[0].into[0].goal",
        "retry[0].id",
        "subtasks",
        "add",
    }
    assert "2 subtasks have the id 'docs'" in str(revise_plan(PLAN, broken, statuses()))


def test_the_limit_of_subtasks_is_one_for_a_revision_and_none_for_the_run() -> None:
    known, plan = PlanContext(max_subtasks=2), PLAN
    for number in range(3):
        more = revision(add=[subtask(f"n{number}a"), subtask(f"n{number}b")])
        revised = revise_plan(plan, more, SubtaskStatuses(), known)
        assert isinstance(revised, Plan)
        plan = revised
    assert len(plan.subtasks) == len(PLAN.subtasks) + 6
    parts = [{"id": "api", "why": "w", "into": [subtask("x"), subtask("y")]}]
    assert refused(revision(add=[subtask("z")], split=parts), known=known) == {
        "add": "3 new subtasks; a revision may add at most 2 (planner.max_subtasks). Add the others later"
    }
    assert "split" in refused(revision(split=parts), known=PlanContext(max_subtasks=1))


def test_a_revision_that_knows_the_places_of_subtasks_does_the_same() -> None:
    places = {id_: place for place, id_ in enumerate(PLAN.ids)}
    change = revision(
        add=[subtask("more", "web")],
        revise=[{"id": "web", "goal": "Another", "depends_on": ["schema"]}],
        retry=[{"id": "api", "worker": "docs"}, {"id": "nothing"}],
    )
    assert apply(PLAN, change, places) == apply(PLAN, change)
    split = revision(split=[{"id": "api", "why": "w", "into": [subtask("x")]}])
    assert apply(PLAN, split, places) == apply(PLAN, split)


def test_a_circle_that_a_revision_would_close_is_refused() -> None:
    assert refused(revision(revise=[{"id": "schema", "depends_on": ["web"]}])) == {
        "subtasks": "depend on each other in a cycle: schema → web → api → schema"
    }


# ---- whatever a planner writes ---------------------------------------------------------------------------------------

ids = st.sampled_from(["a", "b", "c", "d", "e", "new1", "new2", "missing"])
needed = st.lists(ids, max_size=2).map(tuple)
subtasks = st.builds(lambda id_, wants: subtask(id_, *wants), ids, needed)
revisions = st.builds(
    Revision,
    assessment=st.just("so it is"),
    add=st.lists(subtasks, max_size=2).map(tuple),
    revise=st.lists(st.fixed_dictionaries({"id": ids, "depends_on": needed}), max_size=2).map(tuple),
    split=st.lists(
        st.fixed_dictionaries(
            {"id": ids, "why": st.just("w"), "into": st.lists(subtasks, min_size=1, max_size=2).map(tuple)}
        ),
        max_size=2,
    ).map(tuple),
    retry=st.lists(st.fixed_dictionaries({"id": ids}), max_size=1).map(tuple),
    drop=st.lists(st.fixed_dictionaries({"id": ids, "why": st.just("w")}), max_size=2).map(tuple),
)
older = st.lists(st.lists(st.integers(0, 10), max_size=2), min_size=1, max_size=5).map(
    lambda rows: Plan(
        goal="g",
        subtasks=tuple(
            subtask("abcde"[index], *{"abcde"[need % index] for need in row if index}) for index, row in enumerate(rows)
        ),
    )
)
some = st.frozensets(st.sampled_from("abcde").map(SubtaskId), max_size=3)


@given(older, revisions, some, some)
@examples(400)
def test_a_revision_never_leaves_a_circle_an_unknown_id_or_someone_waiting_for_what_is_dropped(
    plan: Plan, change: Revision, busy: frozenset[SubtaskId], failed: frozenset[SubtaskId]
) -> None:
    there = frozenset(plan.ids)
    after = revise_plan(plan, change, SubtaskStatuses(open=there, busy=busy & there, failed=failed & there))
    if not isinstance(after, Plan):
        assert all(problem.message for problem in after)
        return
    assert plan_problems(after, PlanContext()) == ()
    assert find_cycle(needs(after)) == ()
    assert len(set(after.ids)) == len(after.ids)
    dropped, split = {drop.id for drop in change.drop}, {each.id for each in change.split}
    for id_, wants in needs(after).items():
        assert set(wants) <= set(after.ids)
        assert id_ in dropped | split or not set(wants) & (dropped | split)
    assert not (dropped | split | {each.id for each in change.revise}) & busy


knowledge = st.builds(
    PlanContext,
    max_subtasks=st.none() | st.integers(1, 4),
    max_areas=st.integers(0, 2),
    workers=st.sampled_from([None, frozenset({"coder"}), frozenset({"writer"})]),
    checks=st.sampled_from([None, frozenset(), frozenset({"lint"})]),
)


@given(older, revisions, knowledge, some, some)
@examples(600)
def test_a_revision_of_a_valid_plan_has_the_same_result_when_only_its_changes_are_looked_at(
    plan: Plan, change: Revision, known: PlanContext, busy: frozenset[SubtaskId], failed: frozenset[SubtaskId]
) -> None:
    assume(plan_problems(plan, known) == ())
    there = frozenset(plan.ids)
    where = SubtaskStatuses(open=there, busy=busy & there, failed=failed & there)
    assert revise_plan(plan, change, where, known, is_valid=True) == revise_plan(plan, change, where, known)


def test_what_is_no_longer_known_holds_up_no_revision_that_leaves_it_as_it_is() -> None:
    known, more = PlanContext(workers=frozenset({"writer"})), subtask("more").model_copy(update={"worker": "writer"})
    after = revise_plan(PLAN, revision(add=[more]), statuses(), known, is_valid=True)
    assert isinstance(after, Plan)
    again = revise_plan(PLAN, revision(revise=[{"id": "web", "goal": "Another"}]), statuses(), known, is_valid=True)
    assert [problem.path for problem in again] == ["revise[0].worker"]  # type: ignore[union-attr]


@given(older, revisions)
def test_the_same_revision_always_makes_the_same_plan(plan: Plan, change: Revision) -> None:
    again = Revision.model_validate_json(change.model_dump_json())
    assert apply(plan, change) == apply(plan, again)
