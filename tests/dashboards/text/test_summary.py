"""What a run says at its end, and what to do next."""

from dashboards.text.summary import summary_lines
from fleet.core.plans.limits import Policy
from fleet.core.state import facts as f
from tests.fleet.core.story import Story, plan_of


def test_after_a_relanding_the_result_is_taken_under_the_name_of_the_run_that_made_it() -> None:
    relanding = f.Relanding(run="r", branch="main", since="s", result="e")
    told = Story(Policy(publishes=False), plan_of("api"), relanding=relanding)
    told.work_is_done("api")
    told.batch_lands()
    steps = "\n".join(summary_lines(told.state, told.now)).partition("Next steps")[2]
    assert "fleet merge r --into main" in steps
    assert "git log" not in steps
