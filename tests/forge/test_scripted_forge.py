"""The scripted forge answers as the real programs do, and refuses what they would refuse."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.forge.scripted_forge import FaultKind, ScriptedForge
from tests.worktrees.conftest import git, make_repository

THREADS = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) {
    reviewThreads(first: 1, after: $after) {
      pageInfo { hasNextPage endCursor }
      nodes { id path line isResolved isOutdated comments(first: 50) { nodes { databaseId body author { login } } } }
    } } }
}"""
REPLY = """
mutation($thread: ID!, $body: String!) {
  addPullRequestReviewThreadReply(input: {pullRequestReviewThreadId: $thread, body: $body}) { comment { url } }
}"""
VARIABLES: dict[str, Any] = {"owner": "acme", "name": "shop"}
Answered = subprocess.CompletedProcess[str]


@pytest.fixture
def forge(tmp_path: Path) -> ScriptedForge:
    repository = make_repository(tmp_path / "shop")
    git(repository, "branch", "change")
    forge = ScriptedForge.create(tmp_path / "forge", repository)
    forge.push("change", "src/two.py", "TWO = 2\n")
    return forge


@pytest.fixture
def run(forge: ScriptedForge) -> Callable[..., Answered]:
    def run(*arguments: str, feed: str = "") -> Answered:
        program = [str(forge.programs / arguments[0]), *arguments[1:]]
        return subprocess.run(
            program, env=forge.environment(), input=feed, capture_output=True, text=True, check=False, timeout=60
        )

    return run


def test_a_pull_request_is_opened_once_and_found_by_its_branch(
    forge: ScriptedForge, run: Callable[..., Answered]
) -> None:
    create = ("gh", "pr", "create", "--repo", "acme/shop", "--draft", "--base", "main", "--head", "change")
    made = run(*create, "--title", "Two", "--body-file", "-", feed="What landed.\n")
    assert made.stdout == "https://github.com/acme/shop/pull/1\n"

    again = run(*create, "--title", "Two", "--body-file", "-")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.endswith("already exists:\nhttps://github.com/acme/shop/pull/1\n")

    listed = run("gh", "pr", "list", "--repo", "acme/shop", "--head", "change", "--json", "number,headRefOid,isDraft")
    assert json.loads(listed.stdout) == [{"number": 1, "headRefOid": forge.head("change"), "isDraft": True}]
    assert forge.pull(1)["body"] == "What landed.\n"


def test_what_the_real_program_does_not_know_is_refused(forge: ScriptedForge, run: Callable[..., Answered]) -> None:
    forge.add_pull("change")
    assert "Unknown JSON field" in run("gh", "pr", "list", "--repo", "acme/shop", "--json", "nonsense").stderr
    assert run("gh", "pr", "list", "--repo", "acme/shop", "--nonsense", "--json", "number").returncode == 1
    assert "Could not resolve" in run("gh", "issue", "view", "9", "--repo", "acme/shop", "--json", "title").stderr
    assert "404" in run("glab", "api", "projects/acme%2Fshop/nonsense").stderr


def test_threads_are_read_in_pages_and_answered(forge: ScriptedForge, run: Callable[..., Answered]) -> None:
    number = forge.add_pull("change")
    first = forge.add_thread(number, "src/two.py", 1, "Why two?")
    forge.add_thread(number, "src/one.py", 1, "Why not?", outdated=True)

    def page(after: str | None) -> Any:
        variables = {**VARIABLES, "number": number, "after": after}
        asked = run("gh", "api", "graphql", "--input", "-", feed=json.dumps({"query": THREADS, "variables": variables}))
        return json.loads(asked.stdout)["data"]["repository"]["pullRequest"]["reviewThreads"]

    assert [page(None)["nodes"][0]["id"], page("1")["nodes"][0]["line"]] == [first, None]
    assert [page(None)["pageInfo"]["hasNextPage"], page("1")["pageInfo"]["hasNextPage"]] == [True, False]

    fields = ("-f", f"query={REPLY}", "-f", f"thread={first}", "-F", "body=@-")
    replied = run("gh", "api", "graphql", *fields, feed="Because.")
    assert replied.returncode == 0, replied.stderr
    assert forge.replies_of(number)[first] == ["Because."]


def test_a_query_that_github_would_not_know_is_an_error(run: Callable[..., Answered]) -> None:
    answered = run("gh", "api", "graphql", "-f", "query={ viewer { login nonsense } }")
    assert answered.returncode == 1
    assert "Cannot query field 'nonsense' on type 'User'" in answered.stderr


def test_a_check_is_green_when_its_file_has_the_text(forge: ScriptedForge, run: Callable[..., Answered]) -> None:
    number = forge.add_pull("change")
    forge.add_check("unit", "src/two.py", "fixed", log="E  assert 2 == 3", pending=1)

    def conclusion() -> str:
        viewed = run("gh", "pr", "view", str(number), "--repo", "acme/shop", "--json", "statusCheckRollup")
        check = json.loads(viewed.stdout)["statusCheckRollup"][0]
        run_id = check["detailsUrl"].split("/runs/")[1].split("/")[0]
        log = run("gh", "run", "view", run_id, "--repo", "acme/shop", "--log-failed")
        return f"{check['status']} {check['conclusion']} {log.stdout.rpartition('Z ')[2].strip()}"

    assert conclusion() == "IN_PROGRESS  E  assert 2 == 3"
    assert conclusion() == "COMPLETED FAILURE E  assert 2 == 3"
    forge.push("change", "src/two.py", "TWO = 3  # fixed\n")
    assert conclusion() == "IN_PROGRESS  "
    assert conclusion() == "COMPLETED SUCCESS "


def test_gitlab_answers_the_same_forge(forge: ScriptedForge, run: Callable[..., Answered]) -> None:
    number = forge.add_pull("change", "Two")
    thread = forge.add_thread(number, "src/two.py", 1, "Why two?")
    forge.add_check("unit", "src/two.py", "fixed", log="red")
    request = f"projects/acme%2Fshop/merge_requests/{number}"
    header = ("--header", "Content-Type: application/json", "--input", "-")

    viewed = json.loads(run("glab", "mr", "view", str(number), "--repo", "acme/shop", "--output", "json").stdout)
    jobs = run("glab", "api", f"projects/acme%2Fshop/pipelines/{viewed['head_pipeline']['id']}/jobs")
    job = json.loads(jobs.stdout)[0]
    trace = run("glab", "api", f"projects/acme%2Fshop/jobs/{job['id']}/trace").stdout
    assert [viewed["head_pipeline"]["status"], job["status"], trace] == ["failed", "failed", "red\n"]

    found = json.loads(run("glab", "api", f"{request}/discussions?per_page=100").stdout)
    position = found[0]["notes"][0]["position"]
    assert (found[0]["id"], position["new_path"], position["new_line"]) == (thread, "src/two.py", 1)
    run(
        "glab", "api", "--method", "POST", *header, f"{request}/discussions/{thread}/notes", feed='{"body": "Because."}'
    )
    assert forge.replies_of(number)[thread] == ["Because."]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("rate_limit", (1, "API rate limit exceeded", False)),
        ("secondary_rate_limit", (1, "secondary rate limit", False)),
        ("network", (1, "check your internet connection", False)),
        ("not_logged_in", (4, "gh auth login", False)),
        ("dies_before", (-9, "", False)),
        ("dies_after", (-9, "", True)),
        ("slow", (0, "", True)),
    ],
)
def test_a_fault_happens_once(
    forge: ScriptedForge, run: Callable[..., Answered], kind: FaultKind, expected: tuple[int, str, bool]
) -> None:
    code, message, happened = expected
    number = forge.add_pull("change")
    forge.add_fault(kind, "pr\ncomment", seconds=0)
    comment = ("gh", "pr", "comment", str(number), "--repo", "acme/shop", "--body-file", "-")

    first = run(*comment, feed="hello")
    assert first.returncode == code
    assert message in first.stderr
    assert forge.comments_of(number) == (["hello"] if happened else [])
    assert run(*comment, feed="again").returncode == 0


def test_a_person_pushes_by_force_just_before_an_answer(forge: ScriptedForge, run: Callable[..., Answered]) -> None:
    number, before = forge.add_pull("change"), forge.head("change")
    change: dict[str, Any] = {"branch": "change", "path": "src/new.py", "text": "NEW = 1\n", "onto": forge.head("main")}
    forge.add_fault("force_push", "pr\nview", **change)
    viewed = run("gh", "pr", "view", str(number), "--repo", "acme/shop", "--json", "headRefOid")
    assert json.loads(viewed.stdout)["headRefOid"] == forge.head("change") != before
    assert forge.file("change", "src/new.py") == "NEW = 1"
