"""The files for Prometheus and Grafana, checked by Prometheus itself, and a real scrape of real journals."""

import fcntl
import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dashboards.address import Address
from dashboards.metrics.catalog import METRICS
from dashboards.metrics.server import exporting
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder, all_runs
from tests.dashboards.metrics.test_metrics import series_of
from tests.dashboards.stories import busy_story
from tests.docs.verbs import commands_in, problem_with
from tests.fleet.core.story import Story, connected, plan_of
from tests.tools import ROOT, environment, run_tool, tool

SHIPPED = ROOT / "dashboards" / "prometheus"
ALERTS = ROOT / "docs" / "reference" / "alerts.md"
GRAFANA = ROOT / "dashboards" / "grafana" / "fleet.json"
PATIENCE_S = 300.0
_NAME = re.compile(r"\b(?:fleet_[a-z0-9_]+|fleet:[a-z0-9_:]+)\b")


def rules(word: str) -> list[str]:
    """The names of all recorded series, or of all alerts; promtool checks that the file is valid."""
    return re.findall(rf"- {word}: (\S+)", (SHIPPED / "rules.yml").read_text(encoding="utf-8"))


def expressions() -> dict[str, str]:
    """Each expression of the Grafana dashboard, by panel, with its variables filled in."""
    panels: dict[str, str] = {}
    for panel in json.loads(GRAFANA.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$instance", ".*").replace("$job", "fleet")
            expression = expression.replace("$__rate_interval", "30s").replace("$__range", "1m")
            assert "$" not in expression
            panels[f"{panel['title']} {target['refId']}"] = expression
    return panels


def test_promtool_accepts_the_rules_and_the_configuration(tmp_path: Path) -> None:
    for arguments in (("check", "rules", "rules.yml"), ("check", "config", "prometheus.yml")):
        done = run_tool("promtool", *arguments[:2], str(SHIPPED / arguments[2]), home=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    done = run_tool("promtool", "test", "rules", str(SHIPPED / "rules_test.yml"), home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    tried = (SHIPPED / "rules_test.yml").read_text(encoding="utf-8")
    assert len(rules("alert")) > 5
    assert [name for name in (*rules("alert"), *rules("record")) if name not in tried and "target" not in name] == []


def alerts() -> dict[str, str]:
    """The text of each alert."""
    text = (SHIPPED / "rules.yml").read_text(encoding="utf-8").partition("name: fleet-alerts")[2]
    return {part.split("\n", 1)[0]: part for part in text.split("- alert: ")[1:]}


def test_every_alert_has_a_section_that_says_what_to_do() -> None:
    sections = re.findall(r"^## (\S+)$", ALERTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(sections) == sorted(rules("alert")) == sorted(alerts())
    for name, text in alerts().items():
        assert f"runbook_url: 'docs/reference/alerts.md#{name.lower()}'" in text
        assert re.search(r"^        labels: \{severity: (critical|warning|info)\}$", text, re.MULTILINE), name
        assert re.search(r"^          summary: '.+'$", text, re.MULTILINE), name


def test_every_command_that_an_alert_names_exists() -> None:
    named = [
        command
        for name, text in alerts().items()
        for command in commands_in(name, re.sub(r"\{\{ [$\w.]+ \}\}", "RUN", text))
    ]
    assert len(named) > 8
    assert [f"{command}: {problem}" for command in named if (problem := problem_with(command))] == []


def test_every_expression_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    given = expressions()
    recorded = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(given.values())]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": recorded}]}), encoding="utf-8")
    done = run_tool("promtool", "check", "rules", str(path), home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(given)} rules found" in done.stdout


def test_rules_and_dashboard_use_only_existing_metrics() -> None:
    known = {*rules("record"), *(name for metric in METRICS.values() for name in series_of(metric))}
    named = set(_NAME.findall((SHIPPED / "rules.yml").read_text(encoding="utf-8")))
    shown = {name for expr in expressions().values() for name in _NAME.findall(expr)}
    assert len(named) > 10
    assert len(shown) > 30
    assert (named | shown) - known == set()


def test_the_dashboard_can_be_provisioned() -> None:
    board = json.loads(GRAFANA.read_text(encoding="utf-8"))
    panels = board["panels"]
    assert board["uid"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert "id" not in board
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)), "panels lie on each other"
    sources = {panel["datasource"]["uid"] for panel in panels if "datasource" in panel}
    assert sources == {"${datasource}"}


# ---- a real scrape --------------------------------------------------------------------------------------------------


def keep(state_dir: Path, run: str, story: Story) -> None:
    with Journal.create(RunFolder(state_dir / "runs" / run).journal) as journal:
        journal.append(story.facts)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Two runs of today: three closed incidents, one of them with a person's help, and four commits."""
    now = time.time() - 600
    first = Story(plan=plan_of("api", "docs", "site"), now=now)
    for id_ in ("api", "docs"):
        first.attempt_fails(id_)
        first.planner_answers(retry=[{"id": id_, "guidance": "once more"}])
    first.landed("api", "docs", "site")
    second = Story(plan=plan_of("ui", "text", failure_action="ask"), now=now)
    second.attempt_fails("ui")
    second.landed("text")
    keep(tmp_path / "state", "first", first)
    keep(tmp_path / "state", "second", second)
    return tmp_path / "state"


@contextmanager
def prometheus(target: Address, home: Path) -> Iterator[Address]:
    """Debian's Prometheus with our configuration, scraping `target` each second."""
    config = (SHIPPED / "prometheus.yml").read_text(encoding="utf-8")
    for ours, here in (("15s", "1s"), ('"127.0.0.1:9464"', f'"{target}"'), ("- rules.yml", f"- {SHIPPED}/rules.yml")):
        assert ours in config
        config = config.replace(ours, here)
    (home / "prometheus.yml").write_text(config, encoding="utf-8")
    log = home / "prometheus.log"
    with log.open("wb") as file:
        options = ("--config.file", str(home / "prometheus.yml"), "--storage.tsdb.path", str(home / "data"))
        process = subprocess.Popen(
            [tool("prometheus"), *options, "--web.listen-address", "127.0.0.1:0"],
            env=environment(home),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Address("127.0.0.1", int(seen(log, process, r"address=127\.0\.0\.1:([1-9]\d*)")))
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def seen(log: Path, process: subprocess.Popen[bytes], pattern: str) -> str:
    until = time.monotonic() + PATIENCE_S
    while not (found := re.search(pattern, log.read_text(encoding="utf-8", errors="replace"))):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    return found[1]


def ask(server: Address, query: str) -> list[Any]:
    connection = HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
    with closing(connection):
        connection.request("GET", f"/api/v1/query?query={quote(query)}")
        answer = connection.getresponse()
        body = answer.read()
    if answer.status != 200:  # it is still starting
        return []
    result: list[Any] = json.loads(body)["data"]["result"]
    return result


def answer(server: Address, query: str) -> float:
    """The one value that Prometheus answers with, once it has scraped."""
    until = time.monotonic() + PATIENCE_S
    while not (found := ask(server, query)):
        assert time.monotonic() < until, f"no answer to {query}"
        time.sleep(0.1)
    ((_, value),) = (one["value"] for one in found)
    return float(value)


def test_prometheus_knows_the_recovery_and_the_commits_of_the_week(state_dir: Path, tmp_path: Path) -> None:
    with (
        exporting(lambda: all_runs(state_dir), state_dir, Address("127.0.0.1", 0)) as exporter,
        prometheus(exporter.address, tmp_path) as server,
    ):
        assert answer(server, "fleet:recovery_ratio:1w") == pytest.approx(2 / 3)
        assert answer(server, 'fleet_recent_commits{window="1w"}') == 4
        assert answer(server, "fleet:commits:1w") == 4
        assert answer(server, "fleet_commits_landed_total") == 4
        assert answer(server, 'up{job="fleet"}') == 1


def test_every_panel_shows_something_as_shipped(tmp_path: Path) -> None:
    """A run at work and one that has ended; facts come while Prometheus scrapes, as they do."""
    state_dir, begun = tmp_path / "state", time.time() - 60
    facts = [fact.model_copy(update={"at": fact.at + begun}) for fact in busy_story().facts]
    planning = f.ModelCalled(
        at=begun + 15, role="planner", model="m", usage=Usage(input=5, cache_read=9), dollars=0.1, seconds=2
    )
    split = 1 + next(place for place, fact in enumerate(facts) if isinstance(fact, f.WorkerStarted))
    keep(state_dir, "ended", finished_story(begun))
    folder = RunFolder(state_dir / "runs" / "r")
    with (
        Journal.create(folder.journal) as journal,
        working(folder),
        exporting(lambda: all_runs(state_dir), state_dir, Address("127.0.0.1", 0)) as exporter,
    ):
        journal.append([*facts[:split], connected("builder", at=begun + 1, workers=4)])
        with prometheus(exporter.address, tmp_path) as server:
            assert answer(server, "fleet_runs_started_total") == 2
            journal.append([*facts[split:], planning])
            until = time.monotonic() + PATIENCE_S
            silent = expressions()
            while silent and time.monotonic() < until:
                silent = {name: query for name, query in silent.items() if not shows_something(server, query)}
            assert silent == {}
            rows = ask(server, "fleet_run_info")
    assert {(row["metric"]["run"], row["metric"]["state"]) for row in rows} == {("r", "running"), ("ended", "landed")}


def shows_something(server: Address, query: str) -> bool:
    return any(float(one["value"][1]) == float(one["value"][1]) for one in ask(server, query))


def finished_story(now: float) -> Story:
    story = Story(plan=plan_of("api"), now=now)
    story.landed("api")
    story.facts[0] = story.facts[0].model_copy(update={"run": "ended"})
    return story


@contextmanager
def working(folder: RunFolder) -> Iterator[None]:
    """As if an engine worked on a run."""
    with (folder.path / "engine.lock").open("w") as lock:
        lock.write(json.dumps({"pid": 1, "host": "here"}))
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_promtool_accepts_the_page(state_dir: Path, tmp_path: Path) -> None:
    with exporting(lambda: all_runs(state_dir), state_dir, Address("127.0.0.1", 0)) as exporter:
        page, _ = exporter.exposition.scrape("")
    done = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=page,
        env=environment(tmp_path),
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
