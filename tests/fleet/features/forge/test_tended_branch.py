"""Tending takes what has landed as `fleet merge` does, and says so where that is not there."""

import pytest

from fleet.errors import FleetError
from fleet.features.forge.tended_branch import find_take
from fleet.features.table import FEATURES, Feature


def test_the_feature_that_takes_results_is_found_in_the_table() -> None:
    assert find_take({"forge": FEATURES["forge"], "other": Feature(takes="forge.forge:kind_of")}).__name__ == "kind_of"


def test_without_one_nothing_is_begun() -> None:
    with pytest.raises(FleetError, match="requires fleet merge"):
        find_take({"forge": FEATURES["forge"]})
