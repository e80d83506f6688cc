"""The rows of faulty nodes: that what is not as it has to be is seen. `make nodes` plays them."""

from chaos.node_levels import LEVELS, LIARS, Verdict, level_figure
from chaos.node_lies import LIES, OTHERS


def test_a_run_that_was_harmed_misses_the_target_and_says_how() -> None:
    figure, details = level_figure(LIARS, [Verdict(LIARS, (), 16), Verdict(LIARS, ("it landed",), 16)])
    assert (figure.met, figure.where, details) == (False, "1 / 2", ("NOT AS WANTED: it landed",))
    assert level_figure("killed", [Verdict("killed", ())])[0].met


def test_every_lie_that_a_level_needs_is_there() -> None:
    assert {level.lie for level in LEVELS.values()} - {""} == set(OTHERS)
    assert len(LIES) >= 12
