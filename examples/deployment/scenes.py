"""Four deployments with the same plan: one succeeds, two fail, one is rejected. Each checks its result.

The reviewer moves step 3 to two in the morning, and the example moves the clock there. The plan is given and its
workers are programs, so a model is called only to revise a rejected plan.
"""

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from examples.demo.fleet_cli import Fleet
from examples.deployment.cluster import OLD, Cluster, served
from examples.play import SceneError, expect, play

HERE = Path(__file__).resolve().parent
NEW, EST = "v2.1.4", timezone(timedelta(hours=-5), "EST")
NO_MODEL = "http://127.0.0.1:9"  # nothing listens there, and no model is asked
NOT_NOW = "Not in the middle of the day: deploy in the maintenance window, at 2AM EST."
PATIENCE_S = 120.0
CONFIG = """
[checks.named]
all_tests_pass = "python3 -m unittest discover -t ."

[workers.test-runner]
kind = "command"
command = "python3 deploy/test_runner.py {{parameters.test_suite}} {{parameters.environment}}"
network = true
environment = {{ CLUSTER_URL = "{url}", PYTHONDONTWRITEBYTECODE = "1" }}

[workers.db-manager]
kind = "command"
command = "python3 deploy/db_manager.py {{parameters.database}} {{parameters.backup_type}}"
network = true
environment = {{ CLUSTER_URL = "{url}", PYTHONDONTWRITEBYTECODE = "1" }}

[workers.k8s-deployer]
kind = "command"
command = "python3 deploy/k8s_deployer.py {{parameters.service}} {{parameters.version}} {{parameters.strategy}}"
network = true
environment = {{ CLUSTER_URL = "{url}", PYTHONDONTWRITEBYTECODE = "1" }}
"""


@dataclass(frozen=True)
class Stage:
    """A cluster, the service's repository and a fleet, all in one temporary folder."""

    room: Path
    cluster: Cluster
    fleet: Fleet

    @property
    def plan(self) -> Path:
        return self.room / "plans" / "deploy-auth-service-v2.1.4.json"

    @property
    def ahead(self) -> Path:
        return self.room / "clock-is-ahead"

    @contextmanager
    def running(self, run: str, planner: str = NO_MODEL) -> Iterator[subprocess.Popen[bytes]]:
        """A run that waits for the approval of its plan."""
        arguments = ["run", "--plan", str(self.plan), "--name", run, "--repo", str(self.room / "service")]
        arguments += ("--review", "human", "--config", str(self.fleet.config), "--base-url", planner, "--plain")
        print(f"$ fleet run --plan plans/{self.plan.name} --name {run} --review human", flush=True)
        command = [sys.executable, str(HERE / "clock.py"), str(self.ahead), *arguments]
        with subprocess.Popen(command, env=self.fleet.environment, stdin=subprocess.DEVNULL) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    @contextmanager
    def planner(self, window: datetime) -> Iterator[str]:
        """Simulate a planner that follows the reviewer."""
        moved = {"id": "step-3", "not_before": window.isoformat()}
        revision = {"assessment": "The deployment moves to the maintenance window.", "revise": [moved]}
        script = {"label": "deployment", "planner": {"steps": [{"when": {"rejected": "*2AM*"}, "revision": revision}]}}
        (self.room / "script.json").write_text(json.dumps(script), encoding="utf-8")
        with self.fleet.simulated_model(self.room / "script.json") as url:
            yield url

    def type_command(self, *arguments: str, editor: str = "") -> None:
        """Run a command as if it were typed."""
        print(f"$ fleet {shlex.join(arguments)}", flush=True)
        environment = self.fleet.environment | ({"EDITOR": editor, "VISUAL": editor} if editor else {})
        subprocess.run(self.fleet.command(*arguments), env=environment, stdin=subprocess.DEVNULL, check=True)

    def is_untouched(self) -> bool:
        """Whether the cluster has not changed."""
        return (self.cluster.live, self.cluster.backups) == (OLD, [])

    def status(self, run: str, id_: str) -> str:
        """The status of a step according to `fleet show`."""
        command = self.fleet.command("show", id_, "--run", run, "--json")
        shown = subprocess.run(command, env=self.fleet.environment, check=True, capture_output=True)
        return str(json.loads(shown.stdout)["status"])

    def wait(self, run: str, wanted: Callable[[dict[str, Any]], object], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not wanted(self._status(run)):
            if time.monotonic() > until:
                raise SceneError(f"timed out waiting for {what}")
            time.sleep(0.2)

    def _status(self, run: str) -> dict[str, Any]:
        return dict(self.fleet.status(run) or {})


@contextmanager
def staged(**wrong: Any) -> Iterator[Stage]:
    with TemporaryDirectory(prefix="fleet-deployment-") as folder:
        room = Path(folder)
        shutil.copytree(HERE / "service", room / "service", ignore=shutil.ignore_patterns("__pycache__"))
        _repository(room / "service")
        (room / "plans").mkdir()
        shutil.copy(HERE / "plan.json", room / "plans" / "deploy-auth-service-v2.1.4.json")
        shutil.copy(HERE / "rollback-auth-service-v2.1.3.json", room / "plans")
        cluster = Cluster(room / "cluster", **wrong)
        with served(cluster) as url:
            (room / "fleet.toml").write_text(CONFIG.format(url=url), encoding="utf-8")
            stage = Stage(room, cluster, Fleet(state=room / "state", config=room / "fleet.toml"))
            stage.ahead.write_text("0", encoding="utf-8")
            yield stage


def _repository(folder: Path) -> None:
    who = ("-c", "user.name=Ada Example", "-c", "user.email=ada@example.invalid")
    for arguments in (("init", "-q", "-b", "main"), ("add", "-A"), (*who, "commit", "-qm", "auth-service v2.1.4")):
        subprocess.run(["git", *arguments], cwd=folder, check=True)


# ---- the scenes


def good() -> None:
    """The tests pass, the backup is made, and at two in the morning the new version goes live."""
    with staged() as stage:
        window = _window()
        with stage.running("good") as process:
            _wait_for_review(stage, "good")
            print(f"# The plan looks good, but step-3 is for {window:%A, %d %B, %H:%M %Z}.", flush=True)
            reviewer = shlex.join([sys.executable, str(HERE / "reviewer.py"), window.isoformat()])
            stage.type_command("approve", "good", "--edit", editor=reviewer)
            _deployed(stage, "good", window, process)


def _deployed(stage: Stage, run: str, window: datetime, process: subprocess.Popen[bytes]) -> None:
    """Tests and backup run at once, the deployment when its time has come."""
    stage.wait(run, lambda _: stage.status(run, "step-2") == "merged", "the backup")
    stage.type_command("show", "step-3", "--run", run)
    expect(stage.status(run, "step-3") == "waiting", "step-3 waits for its window")
    expect(stage.cluster.live == OLD, f"until then {OLD} is live")
    print(f"# The clock is moved to {window:%H:%M %Z}.", flush=True)
    stage.ahead.write_text(str(window.timestamp() - time.time() + 1), encoding="utf-8")
    expect(process.wait(PATIENCE_S) == 0, "the run has landed")
    expect(stage.cluster.live == NEW, f"{NEW} is live")
    expect(stage.cluster.backups == ["auth_prod-full.db"], "there is a backup")


def tests() -> None:
    """A test fails on staging. The deployment is aborted before any change, so there is no rollback."""
    with staged(staging_is_down=True) as stage, stage.running("tests") as process:
        _approve(stage, "tests")
        expect(process.wait(PATIENCE_S) == 1, "the run did not land")
        expect(stage.fleet.status("tests") is not None and "undone by" not in _why(stage, "tests"), "no rollback ran")
        expect(stage.is_untouched(), "the cluster is unchanged")


def deploy() -> None:
    """The new version is faulty: the rollback plan undoes the switch and the migration."""
    with staged(faulty=(NEW,)) as stage, stage.running("deploy") as process:
        _approve(stage, "deploy")
        expect(process.wait(PATIENCE_S) == 1, "the run did not land")
        expect("undone by rollback-auth-service-v2.1.3" in _why(stage, "deploy"), "the run reports that it was undone")
        expect(stage.cluster.live == OLD, f"{OLD} is live again")
        expect("since" not in stage.cluster.columns, "the migration is undone")


def reject() -> None:
    """The reviewer rejects the plan with a reason. A simulated planner revises it, and the revision is approved."""
    window = _window()
    with staged() as stage, stage.planner(window) as planner, stage.running("reject", planner) as process:
        _wait_for_review(stage, "reject")
        stage.type_command("reject", "reject", "-m", NOT_NOW)
        stage.wait("reject", lambda status: status.get("plan_version") == 2, "the planner's revision")  # noqa: PLR2004
        expect((stage.fleet.status("reject") or {}).get("attempts") == 0, "no step of the rejected plan ran")
        expect(stage.is_untouched(), "the cluster is unchanged")
        stage.type_command("approve", "reject")
        _deployed(stage, "reject", window, process)
        stage.type_command("report", "reject", "--markdown")


SCENES: dict[str, Callable[[], None]] = {"good": good, "tests": tests, "deploy": deploy, "reject": reject}


def _window() -> datetime:
    """The next two in the morning in that time zone."""
    now = datetime.now(EST)
    window = now.replace(hour=2, minute=0, second=0, microsecond=0)
    return window + timedelta(days=window <= now + timedelta(minutes=10))


def _wait_for_review(stage: Stage, run: str) -> None:
    """Wait until the plan waits for its reviewer."""
    stage.wait(run, lambda status: status.get("state") == "awaiting approval", "the question")


def _approve(stage: Stage, run: str) -> None:
    _wait_for_review(stage, run)
    stage.type_command("approve", run)


def _why(stage: Stage, run: str) -> str:
    return json.dumps(stage.fleet.status(run))


def main(chosen: Sequence[str]) -> int:
    return play(SCENES, chosen)
