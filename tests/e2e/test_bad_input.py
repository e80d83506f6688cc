"""What people get wrong: a message that says what, where and what to do; exit code 2 or 3; nothing left behind."""

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import Done, Stage, script, subtask, untouched
from tests.worktrees.conftest import git, make_repository

USAGE, ENVIRONMENT = 2, 3
NOWHERE = "http://127.0.0.1:9"
"""A service that is never called: what is wrong is seen before."""


@contextmanager
def refused(stage: Stage, repository: Path) -> Iterator[None]:
    """Nothing of it stays."""
    with untouched(repository):
        yield
    assert stage.runs == []


@contextmanager
def kept(stage: Stage, repository: Path) -> Iterator[None]:
    """It is kept as refused, and nothing of it is in the user's repository."""
    with untouched(repository):
        yield
    assert [stage.status(run)["state"] for run in stage.runs] == ["refused"]


def run(stage: Stage, repository: Path, *more: str, epic: str = "Write", url: str = NOWHERE) -> Done:
    return stage.fleet("run", epic, "--base-url", url, "--repo", str(repository), "--yes", *more)


# ---- the repository -------------------------------------------------------------------------------------------------


def test_what_is_no_repository_is_refused(stage: Stage, repository: Path) -> None:
    with refused(stage, repository):
        run(stage, stage.room).ended(USAGE).says(str(stage.room), "is not a git repository", "--repo", "git init")
        run(stage, stage.room / "gone").ended(USAGE).says("gone does not exist", "--repo")
        run(stage, repository / "README.md").ended(USAGE).says("README.md is not a folder", "--repo")
        run(stage, repository / ".git").ended(USAGE).says("is inside a .git folder", "--repo")


def test_a_repository_without_commits_is_refused(stage: Stage, repository: Path) -> None:
    empty = stage.room / "empty"
    git(stage.room, "init", "--quiet", str(empty))
    with refused(stage, repository):
        run(stage, empty).ended(USAGE).says(f"no commits in {empty} yet", "git commit")
        run(stage, empty, "--base", "main").ended(USAGE).says("no commit, branch or tag 'main'")


def test_an_unknown_base_is_refused(stage: Stage, repository: Path) -> None:
    with refused(stage, repository):
        run(stage, repository, "--base", "mian").ended(USAGE).says("'mian'", "did you mean 'main'?")
        run(stage, repository, "--base=--all").ended(USAGE).says("no commit, branch or tag '--all'")
        run(stage, repository, "--base", "").ended(USAGE).says("no commit, branch or tag ''")


def test_a_result_branch_that_exists_is_not_overwritten(stage: Stage, repository: Path) -> None:
    git(repository, "branch", "fleet/mine")
    with refused(stage, repository):
        run(stage, repository, "--name", "mine").ended(USAGE).says(
            "already has a branch 'fleet/mine'", "--name", "git branch -D fleet/mine"
        )
    assert git(repository, "rev-parse", "fleet/mine") == git(repository, "rev-parse", "main")


def test_a_branch_in_the_way_of_result_branches_is_reported(stage: Stage, repository: Path) -> None:
    """Git keeps branches like files: where `fleet` is one, there can be no `fleet/mine`."""
    git(repository, "branch", "fleet")
    with refused(stage, repository):
        run(stage, repository, "--name", "mine").ended(USAGE).says("has a branch 'fleet'", "git branch -m fleet")


def test_a_name_that_is_none_is_refused(stage: Stage, repository: Path) -> None:
    with refused(stage, repository):
        for name in ("../up", "", "a.lock"):
            run(stage, repository, f"--name={name}").ended(USAGE).says("invalid run name")


# ---- the epic -------------------------------------------------------------------------------------------------------


def test_an_empty_epic_is_refused(stage: Stage, repository: Path) -> None:
    (stage.room / "epic.md").write_text(" \n\n", encoding="utf-8")
    with refused(stage, repository):
        run(stage, repository, epic=" ").ended(USAGE).says(
            "the epic is empty", "hint: describe the goal in a few sentences"
        )
        run(stage, repository, epic="epic.md").ended(USAGE).says("epic.md is empty")
        run(stage, repository, epic="-").ended(USAGE).says("standard input is empty")
        run(stage, repository, epic="gone.md").ended(USAGE).says("gone.md: file not found")
        stage.fleet("run", "--repo", str(repository)).ended(USAGE).says("no epic given")
        stage.fleet("plan", "--repo", str(repository)).ended(USAGE).says("no epic given")


def test_an_epic_of_ten_megabytes_is_refused(stage: Stage, repository: Path) -> None:
    """As text it can't come: the kernel takes no argument that long."""
    long = "word " * 2_000_000
    (stage.room / "epic.md").write_text(long, encoding="utf-8")
    asked = ("run", "-", "--repo", str(repository), "--base-url", NOWHERE)
    with refused(stage, repository):
        run(stage, repository, epic="epic.md").ended(USAGE).says("epic.md is longer than 200,000 characters")
        stage.fleet(*asked, given=long).ended(USAGE).says("standard input is longer than 200,000 characters")


def test_an_epic_that_is_no_text_is_refused(stage: Stage, repository: Path) -> None:
    (stage.room / "epic.md").write_bytes(b"\xff\xfe\x00")
    asked = ("run", "-", "--repo", str(repository), "--base-url", NOWHERE)
    with refused(stage, repository):
        run(stage, repository, epic="epic.md").ended(USAGE).says("epic.md:1: not UTF-8 text")
        stage.fleet(*asked, given=b"caf\xe9").ended(USAGE).says("standard input is not UTF-8 text")
        run(stage, repository, epic=os.fsdecode(b"caf\xe9")).ended(USAGE).says("the epic is not UTF-8 text")


# ---- the model's service --------------------------------------------------------------------------------------------


def test_without_a_key_and_another_service_there_is_nothing_to_ask(stage: Stage, repository: Path) -> None:
    keyless = stage.without("STAGE_KEY")
    with refused(stage, repository):
        for verb in ("run", "plan"):
            done = keyless.fleet(verb, "Write", "--repo", str(repository)).ended(ENVIRONMENT)
            done.says("no API key: STAGE_KEY is not set", "--base-url", "fleet simulate")


def test_a_wrong_key_is_reported_and_never_printed(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("one"), api_key="the right one"))
    with kept(stage, repository):
        done = run(stage, repository, url=url).ended(ENVIRONMENT).says("401", "invalid x-api-key", "STAGE_KEY")
        assert stage.environment["STAGE_KEY"] not in done.output


def test_an_unreachable_service_is_reported_with_its_address(stage: Stage, repository: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        hasty = stage.with_(FLEET_MODELS_RETRIES="2", FLEET_PLANNER_MAX_FAILURES="2")
        with kept(stage, repository):
            run(hasty, repository, url=url).ended(ENVIRONMENT).says(url, "--base-url")
            hasty.fleet("plan", "Write", "--base-url", url, at=repository).ended(ENVIRONMENT).says(url, "--base-url")


def test_an_unknown_model_is_reported_by_name(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("one"), models=["claude-haiku-5-5"]))
    with kept(stage, repository):
        run(stage, repository, url=url).ended(ENVIRONMENT).says("404", "claude-opus-5-5", "planner.model")


@pytest.mark.thorough
def test_an_unknown_model_of_workers_stops_the_run_and_a_corrected_one_continues_it(
    stage: Stage, repository: Path, model: Serve
) -> None:
    """The planner was paid by then: its plan is kept."""
    url = model(script(subtask("one"), models=["claude-opus-5-5", "claude-haiku-5-5"]))
    wrong = stage.with_(FLEET_MODELS_WORKER="claude-haiku-9", FLEET_LIMITS_ANSWER_WAIT_MINUTES="0.001")
    run(wrong, repository, "--name", "r", url=url).ended(1).says("QUESTION q1", "claude-haiku-9", "fleet resume r")
    stage.fleet("answer", "q1", "continue", "--run", "r").ended(0)
    right = stage.with_(FLEET_MODELS_WORKER="claude-haiku-5-5")  # else it is as when the run was started
    right.fleet("resume", "r", "--base-url", url).ended(0).says("LANDED")


# ---- the machine ----------------------------------------------------------------------------------------------------


SMALL_DISK = 'mount -t tmpfs -o size=$1 tmpfs "$0" && shift && eval "$1"; code=$?; ls -A "$0/runs" 1>&2; exit $code'


def on_a_small_disk(stage: Stage, size: str, commands: str) -> Done:
    """A shell with the state on a file system of `size`, in a mount namespace of its own: no right is needed for that.

    The last line that it prints are the runs that are left.
    """
    disk = stage.room / "disk"
    disk.mkdir(exist_ok=True)
    isolated = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, str(disk), size, commands)
    return stage.with_(FLEET_STATE_DIR=str(disk)).run(isolated)


@pytest.fixture
def large(stage: Stage) -> Path:
    """A repository with twelve megabytes in it, half of which git can't make smaller."""
    at = make_repository(stage.room / "large", {"README.md": "x\n"})
    (at / "random.bin").write_bytes(os.urandom(6_000_000))
    (at / "even.txt").write_text("x" * 6_000_000, encoding="utf-8")
    git(at, "add", "-A")
    git(at, "commit", "-qm", "data")
    return at


def test_a_full_disk_is_reported_before_anything_starts(stage: Stage, large: Path) -> None:
    asked = f"{sys.executable} -m fleet run Write --name r --base-url {NOWHERE} --repo {large}"
    with untouched(large):
        done = on_a_small_disk(stage, "1m", asked).ended(ENVIRONMENT)
        assert done.err.endswith("disk is full\nhint: free some disk space, or set FLEET_STATE_DIR to another disk\n")


@pytest.mark.thorough
def test_a_disk_that_is_too_small_for_the_store_leaves_a_run_that_can_be_resumed(stage: Stage, large: Path) -> None:
    fleet = f"{sys.executable} -m fleet"
    asked = f"{fleet} run Write --name r --base-url {NOWHERE} --repo {large}"
    with untouched(large):
        done = on_a_small_disk(stage, "5m", f"{asked}; test $? = {ENVIRONMENT} && {fleet} status r").ended(0)
        done.says("No space left on device", "free some space, or set state.dir", "r  interrupted")


@pytest.mark.thorough
def test_a_disk_that_fills_up_leaves_a_run_that_can_be_resumed(stage: Stage, large: Path, model: Serve) -> None:
    """The store fits, a worktree does not. With room made, the same run lands."""
    url = model(script(subtask("one")))
    fleet = f"{sys.executable} -m fleet"
    begin = f"{fleet} run Write --name r --base-url {url} --repo {large} --yes"
    go_on = f"test $? = {ENVIRONMENT} && {fleet} status r && rm $0/ballast && {fleet} resume r --base-url {url}"
    with untouched(large):
        done = on_a_small_disk(stage, "100m", f"head -c 90M /dev/zero > $0/ballast; {begin}; {go_on}").ended(0)
        done.says("full", "hint: free some disk space, then run `fleet resume`", "r  interrupted", "LANDED  r")


def test_a_state_directory_that_cannot_be_written_is_reported(stage: Stage, repository: Path) -> None:
    (stage.room / "file").write_text("", encoding="utf-8")
    for place in ("/proc/fleet", str(stage.room / "file" / "state")):
        closed = stage.with_(FLEET_STATE_DIR=place)
        with untouched(repository):
            done = run(closed, repository).ended(ENVIRONMENT)
            done.says(f"can't write to the state directory {place}", "FLEET_STATE_DIR")
        closed.fleet("runs").ended(0).says("no runs yet")
        closed.fleet("status").ended(USAGE).says("no runs in")


def test_a_missing_sandbox_is_reported_with_the_command_that_installs_it(stage: Stage, repository: Path) -> None:
    few = stage.room / "bin"
    few.mkdir()
    for program in ("git", "sh"):
        (few / program).symlink_to(shutil.which(program) or program)
    bare = stage.with_(PATH=str(few))
    with refused(stage, repository):
        done = run(bare, repository).ended(ENVIRONMENT)
        done.says("bubblewrap is not installed", "apt-get install bubblewrap", "--sandbox none")
        bare.fleet("doctor", at=repository).ended(ENVIRONMENT).says("FAIL  sandbox", "apt-get install bubblewrap")


def test_a_missing_git_is_reported(stage: Stage, repository: Path) -> None:
    few = stage.room / "bin"
    few.mkdir()
    (few / "bwrap").symlink_to(shutil.which("bwrap") or "bwrap")
    with refused(stage, repository):
        without = stage.with_(PATH=str(few))
        run(without, repository).ended(ENVIRONMENT).says("git not found in PATH", "apt-get install git")
        without.fleet("doctor", at=repository).ended(ENVIRONMENT).says("FAIL  git", "apt-get install git")


# ---- the configuration and the command line -------------------------------------------------------------------------


def test_a_wrong_key_of_the_configuration_is_reported_with_its_file_and_the_nearest_one(
    stage: Stage, repository: Path
) -> None:
    given = stage.room / "mine.toml"
    given.write_text("[run]\nwrokers = 4\n\n[landing]\nbatch = 0\n", encoding="utf-8")
    (repository / "fleet.toml").write_text('[models]\nbase_url = "https://example.org"\n', encoding="utf-8")
    with refused(stage, repository):
        done = run(stage, repository, "--config", str(given)).ended(USAGE)
        done.says("3 problems", f"{given}:2", "run.wrokers", "did you mean 'workers'?", f"{given}:5", "landing.batch")
        done.says(str(repository / "fleet.toml"), "models.base_url", "which is not an address of this machine")
        stage.fleet("config", "show", "--config", str(given)).ended(USAGE).says("run.wrokers")
        strange = stage.with_(FLEET_RUN_WROKERS="4")
        strange.fleet("config", "show").ended(USAGE).says("FLEET_RUN_WROKERS", "did you mean 'FLEET_RUN_WORKERS'?")
        run(stage, repository, "--config", str(stage.room / "gone.toml")).ended(USAGE).says("gone.toml")


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        (("--wrokers", "4"), "--workers"),
        (("--workers", "0"), "run.workers must be at least 1"),
        (("--budget", "nan"), "run.budget_dollars"),
        (("--sandbox", "docker"), "box.sandbox must be 'bubblewrap' or 'none'"),
        (("--base-url", "example.org"), "models.base_url"),
        (("--plan", "plan.toml"), "EPIC and --plan can't be used together"),
        (("one too many",), "unexpected extra argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_flag_is_reported(flag: tuple[str, ...], says: str, stage: Stage, repository: Path) -> None:
    with refused(stage, repository):
        run(stage, repository, *flag).ended(USAGE).says(says)


def test_verbs_about_a_run_that_is_not_there_say_so(stage: Stage, repository: Path) -> None:
    for verb in ("status", "resume"):
        stage.fleet(verb, at=repository).ended(USAGE).says("no runs in", "hint: start one: fleet run")
    for asked in (("pause", "gone"), ("logs", "a", "--run", "gone"), ("merge", "gone", "--into", "main")):
        stage.fleet(*asked, at=repository).ended(USAGE).says("no run is called 'gone'", "fleet runs")
    stage.fleet("stauts").ended(USAGE).says("unknown verb 'stauts' for `fleet`", "did you mean 'status'?")
    assert stage.runs == []


def test_a_script_that_is_none_is_refused(stage: Stage) -> None:
    path = stage.room / "script.json"
    path.write_text('{"wrokers": {}}', encoding="utf-8")
    stage.fleet("simulate", str(path)).ended(USAGE).says("script.json", "wrokers", "did you mean 'workers'?")
    stage.fleet("simulate", "gone.json").ended(USAGE).says("gone.json")
    path.write_text("{}", encoding="utf-8")
    stage.fleet("simulate", str(path), "--port", "99999").ended(USAGE).says("--port")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        stage.fleet("simulate", str(path), "--port", port).ended(ENVIRONMENT).says("the port is in use")
