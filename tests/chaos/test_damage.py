"""Each kind of damage once, with most of the run done before; `make kill` has eight moments."""

from collections.abc import Sequence

import pytest

from chaos.damage import DAMAGES
from tests.chaos.harness import met_rows

QUICK = ("journal-torn-at-40-percent", "objects-emptied-five")


@pytest.mark.parametrize(
    "damages",
    [QUICK, pytest.param(sorted(DAMAGES.keys() - {*QUICK}), marks=pytest.mark.thorough)],
    ids=("some", "others"),
)
def test_damage_after_a_kill_is_repaired_or_the_work_redone_without_a_human(damages: Sequence[str]) -> None:
    assert met_rows("chaos.damage", *damages, "--moments", "1") == len(damages)
