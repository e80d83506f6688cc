"""Names that runs, subtasks and refs may have."""

import pytest

from fleet.core.base import ids
from fleet.core.base.ids import RunId, Sha, SubtaskId

RUN = RunId("r")


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Add a text kit!", "add-a-text-kit"),
        ("!!!", "run"),
        ("a word that goes far beyond the limit", "a-word-that-goes-far"),
        ("x" * 30, "run"),
    ],
)
def test_a_title_is_shortened_to_whole_words(title: str, name: str) -> None:
    assert ids.slug(title) == name


def test_all_refs_of_a_run_are_below_one_folder() -> None:
    refs = (
        ids.base_ref(RUN),
        ids.tip_ref(RUN),
        ids.attempt_ref(RUN, SubtaskId("api"), 2),
        ids.kept_ref(RUN, SubtaskId("api"), 2),
        ids.aside_ref(RUN, Sha("c0ffee")),
    )
    assert refs == (
        "refs/fleet/r/base",
        "refs/fleet/r/tip",
        "refs/fleet/r/attempts/api/2",
        "refs/fleet/r/kept/api/2",
        "refs/fleet/r/aside/c0ffee",
    )
    assert ids.result_branch(RUN) == "fleet/r"
