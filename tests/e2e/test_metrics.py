"""Metrics and pages of a run while it works, and metrics of all runs afterwards, through the command line."""

import os
import re
import signal
import socket
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from tests.e2e.conftest import Serve
from tests.e2e.stage import PATIENCE_S, Going, Stage, script, subtask, wait_for


def metrics(going: Going) -> dict[str, float]:
    """The values that are served now, by series."""
    match = wait_for(lambda: re.search(r"http://127\.0\.0\.1:(\d+)/metrics", going.output), going)
    connection = HTTPConnection("127.0.0.1", int(match[1]), timeout=PATIENCE_S)
    with closing(connection):
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def pages_of_the_run(going: Going) -> tuple[str, str]:
    """What a browser gets that opens the link of `fleet run --web`, and the metrics there."""
    match = wait_for(lambda: re.search(r"http://127\.0\.0\.1:(\d+)(/sign-in\?token=[\w-]+)", going.output), going)
    with closing(HTTPConnection("127.0.0.1", int(match[1]), timeout=PATIENCE_S)) as connection:
        connection.request("GET", match[2])
        entered = connection.getresponse()
        leads_to = re.search(r'url=([^"]+)', entered.read().decode())
        assert leads_to is not None
        cookie = {"Cookie": entered.headers["Set-Cookie"].partition(";")[0]}
        connection.request("GET", leads_to[1], headers=cookie)
        page = connection.getresponse().read().decode()
        connection.request("GET", "/metrics", headers=cookie)
        return page, connection.getresponse().read().decode()


def kill_pages(stage: Stage) -> None:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"dashboards.web.verbs" in command and str(stage.state).encode() in command:
            os.kill(int(folder.name), signal.SIGKILL)


def test_a_run_serves_metrics_and_pages_and_lands_without_its_pages(
    stage: Stage, repository: Path, model: Serve
) -> None:
    plays = script(subtask("one"), subtask("two", "one"))
    slow = {**plays["workers"]["two"], "pace": {"think_s": 1.0}}
    url = model({**plays, "workers": {**plays["workers"], "two": slow}})
    arguments = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
    with stage.going(*arguments, "--metrics", "127.0.0.1:0", "--web") as going:
        stage.wait("r", lambda state: state.commits == 1, going)
        page, figures = pages_of_the_run(going)
        assert "<title>r: running" in page
        assert "fleet_commits_landed_total 1" in figures
        kill_pages(stage)
        live = metrics(going)
        assert live["fleet_commits_landed_total"] == 1
        assert live['fleet_runs{state="running"}'] == 1
        assert live["fleet_event_loop_delay_seconds_count"] > 0
        assert live["fleet_sandbox_command_seconds_count"] > 0
        assert live['fleet_model_service_state{state="up"}'] == 1
        going.done().ended(0)
    account = stage.fleet("commits", "--since", "1w", "--repo", str(repository), "--json").ended(0).json
    assert (account["commits"], account["all_commits"], account["reverted_share"]) == (2, 3, 0)
    stage.fleet("commits", "--repo", str(repository)).ended(0).says(
        "2 of 3 commits were made by fleet", "claude-haiku-5-5"
    )
    stage.fleet("commits", "--since", "soon", "--repo", str(repository)).ended(2).says("2026-11-02")
    report = stage.fleet("report", "r", "--json").ended(0).json
    assert [part["id"] for part in report["landed"]] == ["one", "two"]
    assert report["simulated"]
    stage.fleet("report", "r").ended(0).says("# Run r", "The model was simulated")
    stage.fleet("report", "r", "-o", "report.html").ended(0).says("wrote report.html")
    assert (stage.room / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    stage.fleet("report", "r", "-o", "report.pdf").ended(2).says("--html, --markdown or --json")
    stage.fleet("report", "r", "--html", "--json").ended(2).says("use one of them")
    with stage.going("metrics", "--listen", "127.0.0.1:0") as going:
        later = metrics(going)
        assert later["fleet_commits_landed_total"] == 2
        assert later['fleet_runs{state="landed"}'] == 1
        assert later['fleet_recent_commits{window="1w"}'] == 2
        assert later['fleet_attempts_total{outcome="landed",worker="coder"}'] == 2
        assert later['fleet_model_calls_total{model="claude-haiku-5-5",role="worker"}'] >= 2
        going.signal(signal.SIGINT)
        going.done().ended(0)


def test_a_port_that_is_taken_costs_a_run_its_metrics_and_nothing_else(
    stage: Stage, repository: Path, model: Serve
) -> None:
    url = model(script(subtask("one")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
        stage.fleet(*arguments, "--metrics", address).ended(0).says("metrics not served", "choose another port")
        stage.fleet("metrics", "--listen", address).ended(3).says("choose another port")
    stage.fleet("metrics", "--listen", "here").ended(2).says("127.0.0.1:9464")
