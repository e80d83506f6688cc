"""Probes carried out: what lands, what is recorded, and what a crash or another probe in between changes."""

import itertools
from dataclasses import replace

import pytest

from dashboards.text.tables import subtask_lines
from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion
from fleet.engine.checks import Checks, Gate, NodeTrust
from fleet.engine.landing import Lander
from fleet.engine.this_machine import ThisMachine
from fleet.ports.worktrees import EffectError
from fleet.read.run import status_view
from fleet.read.subtask_view import subtask_view
from tests.fleet.core.pretend import subtask_of
from tests.fleet.hands import Book, Clock, PaperHands, probed, queued

GATE = Gate(criteria=(Criterion(criterion="the gate", run="gate", fails_before=False),))


def lander(book: Book, hands: PaperHands) -> Lander:
    gate = replace(GATE, reruns=book.state.policy.reruns)
    return Lander(
        book,
        hands,
        Checks(book, hands, hands, Clock(), gate, ThisMachine(hands.lease), NodeTrust(book, Clock())),
        Clock(),
    )


def without(*bad: str) -> PaperHands:
    """The gate is red wherever one of these is merged."""
    return PaperHands(passes=lambda tree, command, _: command != "gate" or not set(bad) & set(tree.split()))


async def test_a_green_probe_lands_all_and_knows_which_commit_was_tested_itself() -> None:
    book, hands = probed(queued("abc"), 3), without()
    await lander(book, hands).test_batch(1)
    assert hands.branch == book.state.tip == "base a b c"
    assert [(member.subtask, member.tested) for member in book.results()[0].landed] == [
        ("a", False),
        ("b", False),
        ("c", True),
    ]
    assert [subtask_of(book.state, id_).attempts[0].tested for id_ in "abc"] == [False, False, True]
    assert {tree for tree, _ in hands.ran} == {"a b base c"}


async def test_a_red_probe_moves_nothing_and_says_whom_it_suspects() -> None:
    book, hands = probed(queued("abc"), 3), without("b")
    await lander(book, hands).test_batch(1)
    assert hands.branch == book.state.tip == "base"
    [result] = book.results()
    assert (result.red, result.suspects, result.landed) == (True, ("a", "b", "c"), ())
    assert [check.command for check in result.checks] == ["gate"]


async def test_nested_probes_narrow_down_to_the_guilty_one_and_land_the_others() -> None:
    book, hands = probed(queued("abcde"), 2, 5), without("c")
    work = lander(book, hands)
    while probes := book.state.landing.open_batches:
        await work.test_batch(probes[-1].number)
    assert hands.branch.split() == ["base", "a", "b", "d", "e"]
    attempt = subtask_of(book.state, "c").attempts[0]
    assert attempt.failure is not None
    assert attempt.failure.kind == "integration"
    assert all(subtask_of(book.state, id_).landed for id_ in "abde")


async def test_how_the_guilty_one_was_found_can_be_shown_batch_by_batch() -> None:
    policy = Policy(slots=1, every_commit_within_s=0, reruns=0)
    book, hands = probed(queued("abcdefgh", policy), 8), without("f")
    await to_the_end(book, hands)
    batches = subtask_view(book.state, book.state.spec(SubtaskId("f")), 1.0).batches
    first, last = batches[0], batches[-1]
    assert (first.red, first.members, first.suspects) == (True, tuple("abcdefgh"), tuple("abcdefgh"))
    assert all(len(now.suspects) <= len(then.suspects) for then, now in itertools.pairwise(batches))
    assert (last.suspects, last.landed, last.red) == (("f",), ("e",), False)
    gates = [command for _, command in hands.ran].count("gate")
    assert status_view(book.state, 1.0, alive=False).landing.gate_runs == gates
    assert sum(batch.gate_runs for batch in batches) <= gates
    text = "\n".join(subtask_lines(subtask_view(book.state, book.state.spec(SubtaskId("f")), 1.0)))
    assert "Batch 1  of 8  red, bisecting 8 suspects: a, b, c, d, e, f, g, h  (1 gate run)" in text
    assert "caused by f" in text


async def test_a_longer_batch_builds_on_the_commits_of_a_shorter_one_that_landed_meanwhile() -> None:
    book, hands = probed(queued("abcd"), 2, 4), without()
    work = lander(book, hands)
    await work.test_batch(1)
    await work.test_batch(2)
    assert hands.branch == book.state.tip == "base a b c d"
    assert [[member.subtask for member in result.landed] for result in book.results()] == [["a", "b"], ["c", "d"]]


async def test_a_probe_that_another_one_answered_records_nothing() -> None:
    book, hands = probed(queued("abcd"), 2, 4), without()
    work = lander(book, hands)
    await work.test_batch(2)
    await work.test_batch(1)
    assert hands.branch == "base a b c d"
    assert len(book.results()) == 1


async def test_what_a_crash_left_unrecorded_is_read_from_the_branch() -> None:
    book, hands = probed(queued("abcd"), 2, 4), without()
    hands.branch = Sha("base a b")
    work = lander(book, hands)
    await work.test_batch(2)
    assert book.state.tip == "base a b"
    assert [member.subtask for member in book.results()[0].landed] == ["a", "b"]
    assert hands.ran == []
    for probe in book.state.landing.open_batches:
        await work.test_batch(probe.number)
    assert hands.branch == book.state.tip == "base a b c d"


async def test_a_conflict_with_what_lands_goes_back_and_the_others_land() -> None:
    book, hands = probed(queued("abc"), 3), without()
    hands.clashes = {"b"}
    await lander(book, hands).test_batch(1)
    assert hands.branch == "base a c"
    [result] = book.results()
    assert [(out.subtask, out.failure.kind) for out in result.ejected] == [("b", "conflict")]


async def test_a_conflict_in_a_red_batch_sends_no_member_back_for_it_may_be_with_the_guilty_one() -> None:
    book, hands = probed(queued("abc"), 3), without("a")
    hands.clashes = {"b"}
    await lander(book, hands).test_batch(1)
    [result] = book.results()
    assert (result.ejected, result.suspects) == ((), ("a", "c"))


async def test_where_every_commit_counts_each_tree_is_tested_and_the_branch_stops_before_a_red_one() -> None:
    book, hands = probed(queued("abcd", Policy(every_commit=True, slots=4, reruns=0)), 4), without("c")
    await lander(book, hands).test_batch(1)
    assert hands.branch == "base a b"
    [result] = book.results()
    assert [(member.subtask, member.tested) for member in result.landed] == [("a", True), ("b", True)]
    assert {tree for tree, command in hands.ran if command == "gate"} >= {"a base", "a b base", "a b base c"}
    assert subtask_of(book.state, "c").attempts[0].failure is not None
    assert book.state.landing.queue == ("d",)


QUICK = Policy(every_commit_within_s=60, slots=2, reruns=0)


async def test_where_there_is_time_each_tree_is_tested_and_the_first_red_one_is_the_guilty() -> None:
    """`c` is red by itself and repaired by `d`: together they are green, one after the other they are not."""
    hands = PaperHands(passes=lambda tree, command, _: command != "gate" or "c" not in tree or "d" in tree)
    book = probed(queued("abcd", QUICK), 4)
    await lander(book, hands).test_batch(1)
    assert hands.branch == "base a b"
    [result] = book.results()
    assert [(member.subtask, member.tested) for member in result.landed] == [("a", True), ("b", True)]
    failure = subtask_of(book.state, "c").attempts[0].failure
    assert failure is not None
    assert failure.kind == "integration"


@pytest.mark.parametrize("bad", ["", "c"])
async def test_of_each_commit_that_lands_its_tree_and_what_passed_on_it_are_recorded(bad: str) -> None:
    book, hands = probed(queued("abcd", Policy(every_commit=True, slots=4, reruns=0)), 4), without(*bad)
    await lander(book, hands).test_batch(1)
    [result] = book.results()
    green = {(run.tree, run.command) for run in (*result.proofs, *result.checks) if run.passed}
    assert [member.tree for member in result.landed] == ["a base", "a b base", "a b base c", "a b base c d"][
        : 2 if bad else 4
    ]
    for member in result.landed:
        assert {(member.tree, "gate"), (member.tree, f"check {member.subtask}")} <= green


async def test_where_only_the_last_tree_is_tested_the_record_says_which_that_is() -> None:
    book, hands = probed(queued("ab", Policy(slots=1, every_commit_within_s=0)), 2), without()
    await lander(book, hands).test_batch(1)
    [result] = book.results()
    assert [(member.tree, member.tested) for member in result.landed] == [("a base", False), ("a b base", True)]
    assert (result.proofs, {run.tree for run in result.checks}) == ((), {"a b base"})


async def test_every_commit_passes_the_gate_and_its_own_criteria_and_the_last_one_all_of_them() -> None:
    book, hands = probed(queued("abc", QUICK), 3), without()
    await lander(book, hands).test_batch(1)
    assert all(member.tested for member in book.results()[0].landed)
    trees = ("a base", "a b base", "a b base c")
    assert {tree for tree, command in hands.ran if command == "gate"} == set(trees)
    assert {(tree, command) for tree, command in hands.ran if command != "gate"} == {
        *((tree, f"check {id_}") for tree, id_ in zip(trees, "abc", strict=True)),
        *((trees[-1], f"check {id_}") for id_ in "ab"),
    }
    assert len(hands.ran) == len(set(hands.ran)), "nothing twice"


async def test_what_lands_below_a_red_commit_passes_the_criteria_of_all_of_it() -> None:
    """`b` breaks what `a` is for, `c` is red by itself: the two trees below pass, each by its own checks."""

    def passes(tree: Sha, command: str, _: int) -> bool:
        names = tree.split()
        return not (command == "check a" and "b" in names) and not (command == "gate" and "c" in names)

    book, hands = probed(queued("abc", QUICK), 3), PaperHands(passes=passes)
    await to_the_end(book, hands)
    assert hands.branch == "base a"
    assert [id_ for id_ in "abc" if subtask_of(book.state, id_).attempts[0].failure] == ["b", "c"]


async def test_a_whole_that_is_red_although_each_commit_passes_is_narrowed_down() -> None:
    book = probed(queued("abcd", QUICK), 4)
    hands = PaperHands(passes=lambda tree, command, _: not (command == "check a" and "c" in tree.split()))
    await to_the_end(book, hands)
    assert hands.branch == "base a b d"
    assert subtask_of(book.state, "c").attempts[0].failure is not None


async def to_the_end(book: Book, hands: PaperHands) -> None:
    work = lander(book, hands)
    while probes := book.state.landing.open_batches:
        await work.test_batch(probes[0].number)


async def test_a_suspect_that_was_red_only_once_is_tested_once_more_while_the_queue_moves() -> None:
    book, hands = probed(queued("ab"), 1), without("a")
    work = lander(book, hands)
    await work.test_batch(1)
    alone, *others = book.state.landing.open_batches
    assert (alone.alone, [member.subtask for member in alone.members]) == (True, ["a"])
    assert [[member.subtask for member in other.members] for other in others] == [["b"]]
    assert subtask_of(book.state, "a").attempts[0].failure is None
    await to_the_end(book, hands)
    assert hands.branch == "base b"
    attempt = subtask_of(book.state, "a").attempts[0]
    assert attempt.failure is not None
    assert [check.command for check in attempt.checks] == ["gate"]
    assert book.state.landing.outcomes.count(False) == 1


async def test_a_suspect_that_passes_alone_waits_for_its_turn_again_and_lands() -> None:
    hands = PaperHands(passes=lambda _, command, time: command != "gate" or time > 1)
    book = probed(queued("a"), 1)
    await to_the_end(book, hands)
    assert hands.branch == "base a"
    assert subtask_of(book.state, "a").landed
    assert book.state.landing.red == 1
    assert [note for note in book.state.warnings if note.startswith("flaky: the gate (gate)")]
    assert len(subtask_of(book.state, "a").attempts) == 1


async def test_who_is_found_by_narrowing_down_is_tested_alone_for_others_may_have_made_the_first_tree_red() -> None:
    book, hands = probed(queued("abc"), 3), without("a")
    work = lander(book, hands)
    await work.test_batch(1)
    await work.test_batch(book.state.landing.open_batches[0].number)
    assert subtask_of(book.state, "a").attempts[0].failure is None
    [alone] = [probe for probe in book.state.landing.open_batches if probe.alone]
    await work.test_batch(alone.number)
    assert subtask_of(book.state, "a").attempts[0].failure is not None


async def test_a_branch_that_someone_else_moved_is_not_moved_again() -> None:
    book, hands = probed(queued("ab"), 2), without()

    class Moved(PaperHands):
        async def landed_since(self, run: str, old: Sha) -> tuple[f.Member, ...]:
            del run, old
            return ()

    moved = Moved(branch=Sha("elsewhere"), passes=hands.passes)
    with pytest.raises(EffectError, match="another process moved the integration branch"):
        await lander(book, moved).test_batch(1)
    assert moved.branch == "elsewhere"
    assert book.results() == []


async def test_a_probe_that_can_not_be_carried_out_sends_its_members_back_free_of_charge() -> None:
    book, hands = probed(queued("ab"), 2), without()
    await lander(book, hands).give_up(1, f.Failure(kind="infrastructure", summary="no disk"))
    assert book.state.landing.queue == ()
    assert [subtask_of(book.state, id_).counted for id_ in "ab"] == [0, 0]


async def test_the_runs_of_the_gate_for_a_suspect_alone_are_counted_and_its_batch_is_shown() -> None:
    book, hands = probed(queued("abcd", Policy(slots=1, every_commit_within_s=0, reruns=1)), 4), without("c")
    await to_the_end(book, hands)
    gates = [command for _, command in hands.ran].count("gate")
    assert status_view(book.state, 1.0, alive=False).landing.gate_runs == gates
    last = subtask_view(book.state, book.state.spec(SubtaskId("c")), 1.0).batches[-1]
    assert (last.alone, last.red, last.members, last.suspects) == (True, True, ("c",), ("c",))
    assert last.gate_runs > 0
