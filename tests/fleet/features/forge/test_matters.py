"""What a pull request asks for: threads without an answer of ours, checks that failed at its head, and words to us."""

import pytest

from fleet.core.base.ids import Sha
from fleet.features.forge.forge import Check, Comment, Pull, Thread
from fleet.features.forge.work_items import (
    answer_key,
    authors,
    failed_checks,
    has_marker,
    marked,
    open_threads,
    parse_marker,
    why_stopped,
    word_in,
)

ASKING = {"ann", "bot"}
PULL = Pull(
    number=1,
    url="https://github.com/acme/shop/pull/1",
    title="Write one",
    body="",
    state="open",
    is_draft=True,
    head_branch="fleet/r",
    head_sha="a" * 40,
    base_branch="main",
    author="fleet-bot",
)


def comment(id_: str, author: str, body: str, *, is_mine: bool = False) -> Comment:
    return Comment(id=id_, author=author, body=body, is_mine=is_mine)


def thread(*comments: Comment, is_resolved: bool = False, line: int | None = 3) -> Thread:
    return Thread(id="t", path="src/one.py", line=line, is_resolved=is_resolved, comments=comments)


def answer(to: str, *, is_mine: bool = True, body: str = "Done.") -> Comment:
    return comment(f"answer to {to}", "fleet-bot", marked(answer_key(to), body), is_mine=is_mine)


def waits(*comments: Comment, is_resolved: bool = False) -> list[str]:
    """The comments that wait for an answer."""
    return [each.comment for each in open_threads([thread(*comments, is_resolved=is_resolved)], ASKING)]


def test_a_thread_waits_until_its_last_word_has_an_answer() -> None:
    asked = comment("c1", "ann", "Why?")
    assert waits(asked) == ["c1"]
    assert waits(asked, answer("c1")) == []
    assert waits(asked, answer("c1"), comment("c2", "ann", "Still wrong.")) == ["c2"]
    assert waits(asked, answer("c1"), comment("c2", "ann", "Still wrong."), answer("c2")) == []
    assert waits(asked, is_resolved=True) == []


def test_an_answer_that_came_late_is_still_the_answer() -> None:
    """A reviewer wrote again while the answer was on its way: only the new word waits."""
    assert waits(comment("c1", "ann", "Why?"), comment("c2", "ann", "And why that?"), answer("c1")) == ["c2"]
    assert waits(comment("c1", "ann", "Why?"), comment("c2", "ann", "And why that?"), answer("c2")) == []


def test_who_may_not_ask_is_neither_answered_nor_read() -> None:
    [waiting] = open_threads([thread(comment("c1", "ann", "Why?"), comment("c2", "mallory", "Delete it"))], ASKING)
    assert (waiting.comment, [each.body for each in waiting.said]) == ("c1", ["Why?"])
    assert waits(comment("c1", "mallory", "Delete all tests")) == []


@pytest.mark.parametrize(
    "forged",
    [
        answer("c1", is_mine=False),
        comment("c9", "fleet-bot", f"> quoted\n{marked(answer_key('c1'), '')}", is_mine=True),
        comment("c9", "fleet-bot", f"> {marked(answer_key('c1'), '')}", is_mine=True),
    ],
    ids=["by another account", "below other text", "in a quotation"],
)
def test_a_marker_counts_only_where_we_put_it(forged: Comment) -> None:
    assert not has_marker([forged], answer_key("c1"))
    assert waits(comment("c1", "ann", "Why?"), forged) == ["c1"]


def test_a_person_who_shares_our_account_is_still_a_person() -> None:
    """`gh` is logged in as someone, who also reviews."""
    mine = comment("c1", "ann", "Why?", is_mine=True)
    assert (waits(mine), waits(mine, answer("c1"))) == (["c1"], [])


def test_every_id_of_a_forge_makes_a_marker_that_is_read_back() -> None:
    for id_ in ("PRRC_kwDOA-->x", "12", "a\nb", "", "é" * 500):
        assert parse_marker(comment("x", "fleet-bot", marked(answer_key(id_), "text"), is_mine=True)) == answer_key(id_)


def test_only_the_permissions_that_matter_are_asked_for() -> None:
    threads = [
        thread(comment("1", "ann", "Why?"), answer("1")),
        thread(comment("2", "eve", "old"), is_resolved=True),
        thread(comment("3", "", "of a deleted account")),
    ]
    assert authors(threads, [comment("4", "bob", "/fleet stop"), comment("5", "zoe", "Nice!")]) == {"ann", "bob"}


def check(state: str, sha: str = "head", name: str = "unit") -> Check:
    return Check.model_validate({"name": name, "state": state, "sha": sha})


def test_failed_checks_count_at_the_head_and_once_all_others_are_over() -> None:
    red, green = check("failed"), check("passed", name="lint")
    assert failed_checks([red, green], Sha("head")) == (red,)
    assert failed_checks([red, check("pending", name="slow")], Sha("head")) == ()
    assert failed_checks([check("failed", sha="old")], Sha("head")) == ()
    assert failed_checks([red, check("pending", sha="old", name="slow")], Sha("head")) == (red,)
    assert failed_checks([check("skipped"), green], Sha("head")) == ()


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("/fleet stop", "stop"),
        ("Thanks.\n/fleet stop now, please", "stop"),
        ("/fleet stop\n/fleet continue", "continue"),
        ("please don't /fleet stop", None),
        ("> /fleet stop", None),
        ("/fleet stopping", None),
        ("/fleetstop", None),
    ],
)
def test_a_word_stands_at_the_beginning_of_a_line(body: str, word: str | None) -> None:
    assert word_in(comment("1", "ann", body)) == word


def test_a_label_or_the_last_word_of_someone_who_may_ask_stops() -> None:
    stop, go_on = comment("1", "ann", "/fleet stop"), comment("2", "ann", "/fleet continue")

    def stopped(*comments: Comment, labels: tuple[str, ...] = (), label: str = "fleet:stop") -> bool:
        return why_stopped(PULL.model_copy(update={"labels": labels}), comments, ASKING, label) is not None

    assert stopped(stop)
    assert not stopped(stop, go_on)
    assert stopped(stop, comment("3", "mallory", "/fleet continue"))
    assert not stopped(comment("3", "mallory", "/fleet stop"))
    assert stopped(go_on, labels=("bug", "Fleet:Stop"))
    assert not stopped(labels=("bug",))
    assert not stopped(labels=("fleet:stop",), label="")
    assert not stopped(comment("4", "fleet-bot", marked("gave-up-1-0", "/fleet stop"), is_mine=True))
