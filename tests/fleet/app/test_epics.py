"""An epic is text or a file; what only points to one is refused before a planner is paid."""

from pathlib import Path

import pytest

from fleet.app.input_files import read_epic
from fleet.errors import UsageError


@pytest.mark.parametrize("given", ["https://example.org/a/b/issues/12", "#123", "123", "a/b#12", "git+ssh://x/y"])
def test_a_reference_is_no_epic(given: str) -> None:
    with pytest.raises(
        UsageError, match="the planner can't fetch web pages; pass an issue as gh:OWNER/REPO#12"
    ) as refused:
        read_epic(given)
    assert given in refused.value.message


def test_a_folder_is_no_epic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in (".", str(tmp_path)):
        with pytest.raises(UsageError, match="is a directory, not an epic; pass the epic as text or a file"):
            read_epic(given)


@pytest.mark.parametrize(
    "given", ["Fix #123", "See https://example.org/x and do it", "Add health/ready", "x" * 5_000, "Write", "a\nb"]
)
def test_text_that_mentions_one_is_an_epic(given: str) -> None:
    assert read_epic(given) == given


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (
            "---\ntitle: Bug on login\nlabels: a, b\n---\n# Do it\nplease\n",
            "Bug on login\n\n# Do it\nplease\n\nlabels: a, b",
        ),
        ('---\ntitle: "Quoted"\n---\n', "Quoted"),
        ("---\nno: title here\n---\ntext", "---\nno: title here\n---\ntext"),
        ("a line\n---\ntitle: x\n---\n", "a line\n---\ntitle: x\n---"),
    ],
)
def test_front_matter_comes_behind_the_text_and_its_title_before_it(given: str, read: str) -> None:
    assert read_epic(given) == read
