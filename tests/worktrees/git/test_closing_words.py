"""Which texts close an issue of a forge, and that they do not any more."""

import pytest

from tests.worktrees.conftest import sign
from worktrees.git.object_format import LONGEST_SUBJECT, compose, parse_trailers, strip_closing_keywords


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("Write one, fixes #7 for @ann", "Write one, fixes (see #7) for @ann"),
        ("Fixes: acme/shop#7.", "Fixes: (see acme/shop#7)."),
        ("RESOLVED GH-12", "RESOLVED (see GH-12)"),
        ("Closes issue #4, #6 and #7", "Closes issue (see #4), #6 and #7"),
        ("closing [#7](x), fix **#8**", "closing [(see #7)](x), fix **(see #8)**"),
        ("Implement https://forge.example/a/b/-/issues/7?x", "Implement (see https://forge.example/a/b/-/issues/7?x)"),
        ("fixes\n#7", "fixes\n(see #7)"),
    ],
)
def test_a_reference_behind_a_closing_word_is_kept_apart_from_it(text: str, harmless: str) -> None:
    assert strip_closing_keywords(text) == harmless
    assert strip_closing_keywords(harmless) == harmless


@pytest.mark.parametrize(
    "text",
    ["Step #3 of 4", "See #7", "Fix the colour #7f7f7f", "hotfix#7", "prefix #7", "Fix UTF-8", "Close https://a.io"],
)
def test_other_text_stays(text: str) -> None:
    assert strip_closing_keywords(text) == text


def test_a_commit_closes_no_issue_and_keeps_its_trailers() -> None:
    message = compose(sign("one", title="Write one, fixes \u200b#7", body="It also closes acme/shop#8."))
    subject, _, body, *_ = message.splitlines()
    assert (subject, body) == ("Write one, fixes (see #7)", "It also closes (see acme/shop#8).")
    assert parse_trailers(message) == parse_trailers(compose(sign("one")))
    assert compose(sign("one", title="Fixes", body="#7")).startswith("Fixes\n\n(see #7)\n\n")
    cut = "x" * (LONGEST_SUBJECT - len(" fixes #1"))
    assert compose(sign("one", title=f"{cut} fixes #123")).splitlines()[0] == f"{cut} fixes (s"
