"""Tokens that must not be shown or kept."""

import pytest

from fleet.features.forge.program import redact

TOKENS = ("ghp_" + "a" * 36, "github_pat_" + "B1_" * 12, "glpat-" + "x" * 20, "gho_" + "c" * 36, "glcbt-64_" + "d" * 20)


@pytest.mark.parametrize("token", TOKENS)
def test_what_is_shaped_like_a_token_is_hidden(token: str) -> None:
    assert token not in redact(f"remote: bad token {token}, sorry")


@pytest.mark.parametrize(
    "text",
    [
        "fatal: unable to access 'https://ann:hunter2@github.com/acme/shop.git/'",
        "https://hunter2@github.com/acme/shop",
        "https://ann:p@hunter2@github.com/acme/shop",
        "ssh://ann:hunter2@host:22/x",
        "> Authorization: Bearer hunter2",
        "PRIVATE-TOKEN: hunter2",
    ],
)
def test_an_account_in_an_address_or_a_header_is_hidden(text: str) -> None:
    assert "hunter2" not in redact(text)


def test_other_text_stays_as_it_is() -> None:
    text = "see https://github.com/acme/shop/pull/5, mail ann@acme.io; git@github.com:acme/shop.git, ghp_short"
    assert redact(text) == text
