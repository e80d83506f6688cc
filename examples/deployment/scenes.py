"""Four deployments with the same plan: one that works, two that fail, one that is rejected. Each says what came of it.

The plan is run as it is printed; who reviews it moves step 3 to two in the morning, and the clock is moved there. The
plan is given and its workers are programs, so no model is asked but where a planner has to revise what was rejected.
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
from examples.play import Wrong, expect, play

HERE = Path(__file__).resolve().parent
NEW, EST = "v2.1.4", timezone(timedelta(hours=-5), "EST")
NOBODY = "http://127.0.0.1:9"  # no model answers there, and none is asked
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
    """A cluster, the service's repository and a fleet, all in one folder that goes afterwards."""

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
    def going(self, run: str, planner: str = NOBODY) -> Iterator[subprocess.Popen[bytes]]:
        """The run, up to the question whether its plan may begin."""
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
        """A simulated one, that does what the reviewer asks for."""
        moved = {"id": "step-3", "not_before": window.isoformat()}
        revision = {"assessment": "The service moves when nobody is at work.", "revise": [moved]}
        script = {"label": "deployment", "planner": {"steps": [{"when": {"rejected": "*2AM*"}, "revision": revision}]}}
        (self.room / "script.json").write_text(json.dumps(script), encoding="utf-8")
        with self.fleet.simulated_model(self.room / "script.json") as url:
            yield url

    def told(self, *arguments: str, editor: str = "") -> None:
        """Something that is typed."""
        print(f"$ fleet {shlex.join(arguments)}", flush=True)
        environment = self.fleet.environment | ({"EDITOR": editor, "VISUAL": editor} if editor else {})
        subprocess.run(self.fleet.command(*arguments), env=environment, stdin=subprocess.DEVNULL, check=True)

    def untouched(self) -> bool:
        """Whether the cluster is as it was."""
        return (self.cluster.live, self.cluster.backups) == (OLD, [])

    def standing(self, run: str, id_: str) -> str:
        """Where a step stands, as `fleet show` says."""
        command = self.fleet.command("show", id_, "--run", run, "--json")
        shown = subprocess.run(command, env=self.fleet.environment, check=True, capture_output=True)
        return str(json.loads(shown.stdout)["status"])

    def wait(self, run: str, wanted: Callable[[dict[str, Any]], object], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not wanted(self._status(run)):
            if time.monotonic() > until:
                raise Wrong(f"{what}: it never happened")
            time.sleep(0.2)

    def _status(self, run: str) -> dict[str, Any]:
        found = self.fleet.status(run)
        return dict(found) if found is not None else {}


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
    """The tests pass, the backup is made, and at two in the morning the new version takes over."""
    with staged() as stage:
        window = _window()
        with stage.going("good") as going:
            _shown(stage, "good")
            print(f"# The plan looks good, but step-3 is for {window:%A, %d %B, %H:%M %Z}.", flush=True)
            reviewer = shlex.join([sys.executable, str(HERE / "reviewer.py"), window.isoformat()])
            stage.told("approve", "good", "--edit", editor=reviewer)
            _deployed(stage, "good", window, going)


def _deployed(stage: Stage, run: str, window: datetime, going: subprocess.Popen[bytes]) -> None:
    """Tests and backup run at once, the deployment when the clock is there."""
    stage.wait(run, lambda _: stage.standing(run, "step-2") == "merged", "the backup")
    stage.told("show", "step-3", "--run", run)
    expect(stage.standing(run, "step-3") == "waiting", "step-3 waits for its window")
    expect(stage.cluster.live == OLD, f"until then {OLD} answers")
    print(f"# The clock is moved to {window:%H:%M %Z}.", flush=True)
    stage.ahead.write_text(str(window.timestamp() - time.time() + 1), encoding="utf-8")
    expect(going.wait(PATIENCE_S) == 0, "the run has landed")
    expect(stage.cluster.live == NEW, f"{NEW} answers")
    expect(stage.cluster.backups == ["auth_prod-full.db"], "there is a backup")


def tests() -> None:
    """Staging fails a test: the deployment is aborted before anything was changed, so nothing is rolled back."""
    with staged(staging_is_down=True) as stage, stage.going("tests") as going:
        _approved(stage, "tests")
        expect(going.wait(PATIENCE_S) == 1, "the run did not land")
        expect(stage.fleet.status("tests") is not None and "undone by" not in _why(stage, "tests"), "no rollback ran")
        expect(stage.untouched(), "the cluster is as it was")


def deploy() -> None:
    """The new version is sick: after the switch and the migration both are undone, by the rollback plan."""
    with staged(sick=(NEW,)) as stage, stage.going("deploy") as going:
        _approved(stage, "deploy")
        expect(going.wait(PATIENCE_S) == 1, "the run did not land")
        expect("undone by rollback-auth-service-v2.1.3" in _why(stage, "deploy"), "the run says that it was undone")
        expect(stage.cluster.live == OLD, f"{OLD} answers again")
        expect("since" not in stage.cluster.columns, "the migration is undone")


def reject() -> None:
    """The reviewer says no, and why. Nothing runs; a simulated planner revises the plan, and that one is approved."""
    window = _window()
    with staged() as stage, stage.planner(window) as planner, stage.going("reject", planner) as going:
        _shown(stage, "reject")
        stage.told("reject", "reject", "-m", NOT_NOW)
        stage.wait("reject", lambda status: status.get("plan_version") == 2, "the planner's revision")  # noqa: PLR2004
        expect((stage.fleet.status("reject") or {}).get("attempts") == 0, "no step of the rejected plan ran")
        expect(stage.untouched(), "the cluster is as it was")
        stage.told("approve", "reject")
        _deployed(stage, "reject", window, going)
        stage.told("report", "reject", "--markdown")


SCENES: dict[str, Callable[[], None]] = {"good": good, "tests": tests, "deploy": deploy, "reject": reject}


def _window() -> datetime:
    """The next time it is two in the morning there."""
    now = datetime.now(EST)
    window = now.replace(hour=2, minute=0, second=0, microsecond=0)
    return window + timedelta(days=window <= now + timedelta(minutes=10))


def _shown(stage: Stage, run: str) -> None:
    """The plan, when it waits for its reviewer."""
    stage.wait(run, lambda status: status.get("state") == "awaiting approval", "the question")


def _approved(stage: Stage, run: str) -> None:
    _shown(stage, run)
    stage.told("approve", run)


def _why(stage: Stage, run: str) -> str:
    return json.dumps(stage.fleet.status(run))


def main(chosen: Sequence[str]) -> int:
    return play(SCENES, chosen)
