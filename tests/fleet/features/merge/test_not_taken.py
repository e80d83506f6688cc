"""What a person learns where a branch did not get a result."""

from pathlib import Path

from fleet.core.base.ids import RunId
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.features.merge.merge_result import relanding_error
from fleet.runs.run_folder import RunFolder
from tests.fleet.core.story import Story, failure, plan_of

RED = f.CheckRun(criterion="the gate", command="make test", passed=False, output="1 failed\x1b[31m", log="checks/1.log")
RELANDING = f.Relanding(run="r", branch="main", since="s", result="e", commits={"api": "c1", "docs": "c2"})


def stuck(*, attempts: int) -> Story:
    """The first commit is red on the branch, and what is done again fails in another way."""
    policy = Policy(in_order=True, publishes=False, max_attempts=attempts, answer_wait_s=0)
    played = Story(policy, plan_of("api", "docs", failure_action="ask"), relanding=RELANDING)
    played.work_is_done("api", "docs")
    played.happens(f.AttemptFailed(at=0, subtask="api", number=1, failure=failure("integration"), checks=(RED,)))
    for _ in range(attempts - 1):
        played.attempt_fails("api", "bounds")
    played.time_passes(1)
    return played


def test_a_red_commit_is_named_with_the_check_though_later_attempts_failed_otherwise(tmp_path: Path) -> None:
    played = stuck(attempts=2)
    error = relanding_error(played.state, RunFolder(tmp_path), "main", RunId("r"))
    assert (error.exit_code, error.code) == (1, "not_merged")
    what, *check = error.message.splitlines()
    assert what.startswith(
        "main is unchanged: commit 1 of 2, Build api (api), fails its checks on top of it. 1 more attempt"
    )
    assert what.endswith("1 more attempt failed, the last with: red")
    assert check == [
        "the gate: make test",
        "1 failed\\x1b[31m",
        f"full output: {tmp_path}/checks/1.log",
    ]
    assert "`fleet retry api --run r -g GUIDANCE`, then the same command" in error.hint


def test_what_was_not_done_again_is_not_said_to_be(tmp_path: Path) -> None:
    error = relanding_error(stuck(attempts=1).state, RunFolder(tmp_path), "main", RunId("r"))
    assert "done again" not in error.message


def test_an_interruption_is_no_verdict(tmp_path: Path) -> None:
    played = Story(Policy(), plan_of("api"), relanding=RELANDING)
    error = relanding_error(played.state, RunFolder(tmp_path), "main", RunId("r"))
    assert (error.exit_code, error.code) == (130, "interrupted")
    assert "the same command again to continue" in error.hint
