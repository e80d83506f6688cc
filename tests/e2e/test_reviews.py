"""Reviews by another model, from a plan file to what lands: findings send work back, a batch is paid for once."""

import json
from pathlib import Path

import httpx2
import pytest

from fleet.core.state.state import RunState
from tests.e2e.conftest import Serve
from tests.e2e.stage import Json, Stage, content, landed, script, subtask
from tests.fleet.core.pretend import subtask_of

REVIEW = {"criterion": "no secret is written", "review": "Secrets that the change writes into the repository."}
FINDING = {"text": "password", "problem": "The password is written into a file that everyone can read."}


def reviewed(id_: str, **more: object) -> Json:
    """A subtask that a command and a review decide."""
    return subtask(id_, acceptance=[{"criterion": "it is written", "run": f"test -f {id_}.txt"}, REVIEW | more])


def writes(text: str, id_: str) -> Json:
    return {"do": "solve", "files": {f"{id_}.txt": text}}


def plan_file(room: Path, *subtasks: Json) -> str:
    path = room / "plan.json"
    path.write_text(json.dumps({"goal": "Write", "subtasks": list(subtasks)}))
    return str(path)


def begin(stage: Stage, repository: Path, url: str, plan: str) -> tuple[str, ...]:
    where = ("--name", stage.run_name, "--base-url", url, "--repo", str(repository))
    return ("run", "--plan", plan, *where, "--yes")


def is_batched(state: RunState) -> bool:
    """Whether a batch of reviews was sent, and its name is known."""
    return any(attempt.batch is not None and attempt.batch.batch for _, attempt in state.underway())


def troubles(url: str) -> Json:
    seen: Json = httpx2.get(f"{url}/troubles", trust_env=False).json()
    return seen


def test_a_finding_sends_work_back_and_is_mended(stage: Stage, repository: Path, model: Serve) -> None:
    two = [writes("the password is 1234\n", "two"), writes("two\n", "two")]
    url = model(script(workers={"two": two}, reviewers={"two": {"attempts": [[FINDING]]}}))
    stage.fleet(*begin(stage, repository, url, plan_file(stage.room, reviewed("two")))).ended(0).says(
        "two.txt:1: The password is written", "no finding", "finding at two.txt:1 was fixed"
    )
    assert content(repository, stage.run_name, "two.txt") == "two"
    state = stage.folder(stage.run_name).state()
    first, second = subtask_of(state, "two").attempts
    assert first.failure is not None
    assert (first.failure.kind, second.failure) == ("check", None)
    assert "two.txt:1: The password is written" in first.failure.evidence
    assert first.votes[0].model != first.model
    assert set(state.settled.values()) == {"fixed"}
    assert state.spend["reviewer"].calls == 2


@pytest.mark.thorough
def test_a_batch_survives_a_kill_and_is_paid_for_once_and_half(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(workers={"two": [writes("two\n", "two")]}, batch_asks=2))
    batched = stage.with_(FLEET_REVIEWER_BATCH="true", FLEET_REVIEWER_POLL_S="3600")
    plan = plan_file(stage.room, reviewed("two", votes=3))
    with batched.going(*begin(stage, repository, url, plan)) as going:
        batched.wait(stage.run_name, is_batched, going)
        going.kill()
    state = stage.folder(stage.run_name).state()
    assert (state.spend.get("reviewer"), state.ended) == (None, False)
    batched.with_(FLEET_REVIEWER_POLL_S="0.1").fleet("resume", stage.run_name).ended(0)
    state = stage.folder(stage.run_name).state()
    assert landed(repository, stage.run_name) == ["two"]
    seen, [attempt] = troubles(url), subtask_of(state, "two").attempts
    assert (seen["batches"], len(attempt.votes), state.pending_reviews) == (1, 3, {})
    spent = {role: spend.priced_dollars for role, spend in state.spend.items()}
    assert sum(spent.values()) == pytest.approx(sum(seen["dollars"].values()))
    assert spent["reviewer"] == pytest.approx(seen["dollars"]["claude-opus-5-5"])
