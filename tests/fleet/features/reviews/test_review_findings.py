"""What the doctor finds about reviews."""

import pytest

from fleet.app.fleet import Fleet
from fleet.config.load import load_config
from fleet.features.reviews.reviews import findings

USUAL = "claude-opus-5-5 (or claude-haiku-5-5, if claude-opus-5-5 made the change) reviews every change, 3 votes"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, []),
        ({"reviewer.look_for": "holes", "reviewer.votes": 3}, [USUAL]),
        (
            {"reviewer.model": "m", "reviewer.batch": True},
            ["m reviews changes for which the plan requires a review, 1 vote, as batches"],
        ),
    ],
)
async def test_who_reviews_changes_is_said_where_it_is_configured(keys: dict[str, object], says: list[str]) -> None:
    fleet = Fleet(load_config(environ={}, user_file=None, flags=keys), {})
    assert [finding.says async for finding in findings(fleet)] == says
