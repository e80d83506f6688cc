"""What comes next by what came before."""

import pytest

from fleet.core.forecast.earlier import expect_next


def test_without_anything_before_nothing_is_expected() -> None:
    assert expect_next([]) is None
    assert expect_next([0.0, 0.0]) is None


def test_one_run_says_little_and_many_alike_say_much() -> None:
    one, many = expect_next([2.0]), expect_next([2.0] * 20)
    assert one is not None
    assert many is not None
    assert one[0] == many[0] == pytest.approx(2.0)
    assert one[1] > 2 * one[0]
    assert many[1] < 2 * many[0]


def test_runs_that_differ_make_a_wider_range() -> None:
    alike, different = expect_next([2.0, 2.1, 1.9, 2.0]), expect_next([0.5, 8.0, 2.0, 2.0])
    assert alike is not None
    assert different is not None
    assert different[1] / different[0] > alike[1] / alike[0]
