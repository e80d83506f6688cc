"""The limits of a run, and how much of each is left."""

from fleet.core.plans.limits import Policy
from fleet.core.views.run_view import LimitView, limits_view
from tests.fleet.core.story import Story


def test_a_limit_that_is_not_set_is_null_and_one_that_is_has_the_rest() -> None:
    story = Story(Policy(workers=3, budget_dollars=4.0, budget_attempts=2))
    view = limits_view(story.state, story.now, alive=True, changed=False)
    assert (view.workers, view.alive, view.changed) == (3, True, False)
    assert view.budgets["dollars"] == LimitView(4.0, 4.0)
    assert view.budgets["attempts"] == LimitView(2, 2)
    assert view.budgets["tokens"] == LimitView(limit=None, left=None)
