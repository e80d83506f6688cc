"""What names an issue or a pull request, and what only looks like it."""

import pytest

from fleet.errors import UsageError
from fleet.features.forge.forge import ForgePlace, Reference, issue_reference, place_of_remote, pull_reference
from tests.fleet.features.forge.recording import GITHUB, GITLAB

SHOP = ForgePlace(GITHUB, "github.com", "acme/shop")
LAB = ForgePlace(GITLAB, "gitlab.com", "acme/web/shop")


@pytest.mark.parametrize(
    ("text", "place", "number"),
    [
        ("gh:acme/shop#12", SHOP, 12),
        ("gl:acme/web/shop#3", LAB, 3),
        ("https://github.com/acme/shop/issues/12", SHOP, 12),
        ("https://GitHub.com/acme/shop/issues/12#issuecomment-1", SHOP, 12),
        ("https://git.acme.io:8443/web/shop/-/issues/7", ForgePlace(GITLAB, "git.acme.io:8443", "web/shop"), 7),
        ("https://gitlab.com/acme/web/shop/-/work_items/7", LAB, 7),
        ("https://ghe.acme.io/web/shop/issues/7?plain=1", ForgePlace(GITHUB, "ghe.acme.io", "web/shop"), 7),
        ("https://ann:s3cret@github.com/acme/shop/issues/1", SHOP, 1),
    ],
)
def test_an_issue_is_named_in_short_or_by_its_address(text: str, place: ForgePlace, number: int) -> None:
    assert issue_reference(text) == Reference(place, number)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gh:acme/shop#5", Reference(SHOP, 5)),
        ("gl:acme/web/shop!5", Reference(LAB, 5)),
        ("https://github.com/acme/shop/pull/5/files", Reference(SHOP, 5)),
        ("https://gitlab.com/acme/web/shop/-/merge_requests/5/diffs", Reference(LAB, 5)),
        ("5", Reference(SHOP, 5)),
        ("#5", Reference(SHOP, 5)),
        ("https://github.com/acme/shop/issues/5", None),
        ("main", None),
    ],
)
def test_a_pull_request_is_named_in_short_by_its_address_or_by_its_number(
    text: str, expected: Reference | None
) -> None:
    assert pull_reference(text, SHOP) == expected


@pytest.mark.parametrize("text", ["Add #12", "gh:acme/shop", "12", "gh:acme/shop#twelve", "x" * 400, "gh: a/b#1"])
def test_an_epic_in_words_is_not_an_issue(text: str) -> None:
    assert issue_reference(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "gh:--upload-pack=touch/x#1",
        "gh:acme/-R#1",
        "gh:acme/..#1",
        "gh:acme#1",
        "gh:a/b/c#1",
        "gl:acme/$(id)#1",
        "gh:acme/shop\x1b[31m#1",
        "https://-o.example/acme/shop/issues/1",
        "https://github.com/acme/shop;id/issues/1",
    ],
)
def test_a_name_that_a_program_could_take_for_an_option_or_a_command_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        issue_reference(text)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/acme/shop.git", SHOP),
        ("https://x-access-token:ghp_secret@github.com/acme/shop", SHOP),
        ("git@github.com:acme/shop.git", SHOP),
        ("ssh://git@github.com:22/acme/shop.git", SHOP),
        ("git@gitlab.com:acme/web/shop.git", LAB),
        ("https://gitlab.acme.io:8443/web/shop.git", ForgePlace(GITLAB, "gitlab.acme.io:8443", "web/shop")),
        ("https://acme.ghe.com/web/shop", ForgePlace(GITHUB, "acme.ghe.com", "web/shop")),
        ("https://git.acme.io/web/shop", None),
        ("https://github.com/-o/shop", None),
        ("/srv/git/shop.git", None),
        ("../shop", None),
        ("ext::sh -c id", None),
    ],
)
def test_the_place_of_a_remote_is_read_from_its_url_without_its_account(url: str, expected: ForgePlace | None) -> None:
    assert place_of_remote(url) == expected


def test_a_host_whose_name_says_nothing_is_what_it_is_said_to_be() -> None:
    assert place_of_remote("https://git.acme.io/web/shop", GITLAB) == ForgePlace(GITLAB, "git.acme.io", "web/shop")


def test_a_place_is_written_as_it_is_read() -> None:
    for text in ("gh:acme/shop#12", "gl:acme/web/shop#12"):
        reference = issue_reference(text)
        assert reference is not None
        assert reference.place.issue_text(reference.number) == text
