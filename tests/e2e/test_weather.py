"""A service that fails everybody for a while: seen from the command line, with the simulated model's weather."""

import signal
import time
from pathlib import Path

import pytest

from dashboards.text.tables import status_lines
from fleet.read.run import status_view
from tests.e2e.conftest import Serve
from tests.e2e.stage import Json, Stage, landed, script, subtask

PACE = {"think_s": 0.3}


def test_an_outage_is_waited_for_shown_and_costs_no_attempt(stage: Stage, repository: Path, model: Serve) -> None:
    names = [f"part{number}" for number in range(4)]
    spell = {"first_call": 2, "last_call": 9, "status": 529}
    url = model(script(*(subtask(name) for name in names), pace=PACE, weather=[spell]))
    asked = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
    with stage.going(*asked) as going:
        state = stage.wait("r", lambda state: state.service, going)
        view = status_view(state, time.time(), alive=True)  # a verb would come too late on a busy machine
        (wait,) = view.service
        assert (wait.condition, wait.family) == ("down", None)
        shown = "\n".join(status_lines(view))
        for part in ("WAITING", "the model service does not respond", "HTTP 529"):
            assert part in shown
        going.done().ended(0).says("WAITING: the model service does not respond", "is available again", "LANDED")
    assert sorted(landed(repository, "r")) == names
    status = stage.status("r")
    assert (status["attempts"], status["incidents"]["opened"]) == (4, 0)


@pytest.mark.parametrize(
    "spell",
    [pytest.param({"status": 529}, marks=pytest.mark.thorough), {"status": 429, "retry_after": 3600}],
    ids=["outage", "limit"],
)
def test_one_signal_is_enough_while_calls_wait(stage: Stage, repository: Path, model: Serve, spell: Json) -> None:
    """SIGTERM: what waits for the service is not called any more, uses no attempt, and continues after a resume."""
    names = ["one", "two", "three"]
    asked = script(*(subtask(name) for name in names), pace=PACE)
    url = model({**asked, "weather": [{"first_call": 2, **spell}]})
    arguments = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
    with stage.going(*arguments) as going:
        stage.wait("r", lambda state: state.service and state.running(), going)
        going.signal(signal.SIGTERM)
        going.done().ended(130).says("draining", "stopped (drained)", "fleet resume r")
    state = stage.folder("r").state()
    assert (state.commits, state.attempts, len(state.incidents)) == (0, 3, 0)
    stage.fleet("resume", "r", "--base-url", model(asked)).ended(0).says("LANDED")
    assert stage.folder("r").state().base_url != url, "the one that was named last is the one"
    assert sorted(landed(repository, "r")) == sorted(names)
    assert stage.status("r")["attempts"] == 3


def test_a_refused_key_in_the_middle_of_a_run_waits_for_a_human_and_loses_nothing(
    stage: Stage, repository: Path, model: Serve
) -> None:
    names = [f"part{number}" for number in range(3)]
    spell = {"first_call": 2, "last_call": 2, "status": 401, "message": "invalid x-api-key"}
    url = model(script(*(subtask(name) for name in names), pace=PACE, weather=[spell]))
    asked = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
    with stage.going(*asked) as going:
        state = stage.wait("r", lambda state: state.open_questions(), going)
        (question,) = state.open_questions()
        assert "refuses us" in question.text
        stage.fleet("answer", question.id, "fixed", "--run", "r").ended(0)
        going.done().ended(0).says("QUESTION q1", "is available again", "LANDED")
    assert sorted(landed(repository, "r")) == names
    assert stage.status("r")["attempts"] == 3


@pytest.mark.thorough
def test_a_refused_key_that_is_not_replaced_ends_the_run_and_resume_lands_the_rest_without_an_answer(
    stage: Stage, repository: Path, model: Serve
) -> None:
    names = [f"part{number}" for number in range(3)]
    spell = {"first_call": 2, "status": 401, "message": "invalid x-api-key"}
    refusing = model(script(*(subtask(name) for name in names), pace=PACE, weather=[spell]))
    asked = ("run", "Write", "--name", "r", "--base-url", refusing, "--repo", str(repository), "--yes")
    quick = stage.with_(FLEET_LIMITS_ANSWER_WAIT_MINUTES="0.02")
    quick.fleet(*asked).ended(1).says("PARTIAL", "no one answered q1, and all calls are waiting", "fleet resume r")
    answering = model(script(*(subtask(name) for name in names)))
    stage.fleet("resume", "r", "--base-url", answering).ended(0).says("LANDED")
    assert sorted(landed(repository, "r")) == names
