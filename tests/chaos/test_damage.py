"""Each kind of damage once, with most of the run done before; `make kill` has eight moments."""

from chaos.damage import DAMAGES
from tests.chaos.harness import met_rows


def test_damage_after_a_kill_is_repaired_or_the_work_redone_without_a_human() -> None:
    assert met_rows("chaos.damage", "--moments", "1") == len(DAMAGES)
