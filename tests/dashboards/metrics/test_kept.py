"""What metrics counted stays counted: whatever is cleaned, and however often the exporter starts again."""

import shutil
from pathlib import Path

import pytest

from dashboards.metrics.counters import DAMAGED, FILE, Tally, keep_metrics
from dashboards.metrics.server import Exporter
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder, all_runs
from tests.dashboards.metrics.test_metrics import value
from tests.fleet.core.story import Story, plan_of


def run_of(state_dir: Path, name: str, *landed: str, at: float = 0.0) -> RunFolder:
    story = Story(plan=plan_of(*landed), now=at)
    story.attempt_fails(landed[0])
    story.planner_answers(retry=[{"id": landed[0], "guidance": "once more"}])
    story.landed(*landed)
    folder = RunFolder(state_dir / "runs" / name)
    first = story.facts[0].model_copy(update={"at": at})
    with Journal.create(folder.journal) as journal:
        journal.append([first, *story.facts[1:]])
    return folder


def exported(state_dir: Path) -> str:
    """What a new exporter shows."""
    return Exporter(lambda: all_runs(state_dir), state_dir).exposition.scrape("")[0].decode()


def counts(text: str) -> list[float]:
    names = (
        "fleet_commits_landed_total",
        "fleet_recoveries_total",
        "fleet_attempt_seconds_count",
        "fleet_runs_started_total",
    )
    return [value(text, name) for name in names]


def delete(folder: RunFolder, state_dir: Path) -> None:
    keep_metrics(folder, state_dir)
    shutil.rmtree(folder.path)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    run_of(tmp_path, "one", "api", "docs")
    run_of(tmp_path, "two", "web")
    return tmp_path


def test_cleaning_some_or_all_runs_takes_nothing_back(state_dir: Path) -> None:
    before = counts(exported(state_dir))
    assert before[0] == 3
    assert before[3] == 2
    one, two = sorted(all_runs(state_dir), key=lambda folder: folder.run)
    delete(one, state_dir)
    assert counts(exported(state_dir)) == before
    delete(two, state_dir)
    assert counts(exported(state_dir)) == before
    assert list(all_runs(state_dir)) == []


def test_an_exporter_that_runs_meanwhile_counts_nothing_twice(state_dir: Path) -> None:
    exporter = Exporter(lambda: all_runs(state_dir), state_dir)
    before = counts(exporter.exposition.scrape("")[0].decode())
    for folder in list(all_runs(state_dir)):
        delete(folder, state_dir)
    assert counts(exporter.exposition.scrape("")[0].decode()) == before
    run_of(state_dir, "three", "cli")
    assert counts(exporter.exposition.scrape("")[0].decode())[0] == 4


def test_a_clean_up_that_is_killed_before_the_folder_goes_counts_once(state_dir: Path) -> None:
    before = counts(exported(state_dir))
    (folder, *_) = all_runs(state_dir)
    keep_metrics(folder, state_dir)
    assert counts(exported(state_dir)) == before
    delete(folder, state_dir)
    assert counts(exported(state_dir)) == before


def test_another_run_of_the_same_name_counts(state_dir: Path) -> None:
    for folder in list(all_runs(state_dir)):
        delete(folder, state_dir)
    run_of(state_dir, "one", "api", at=50.0)
    assert counts(exported(state_dir))[0] == 4


def test_a_damaged_file_is_set_aside(state_dir: Path) -> None:
    (state_dir / FILE).write_text('{"tally": 3}')
    assert counts(exported(state_dir))[0] == 3
    assert (state_dir / DAMAGED).is_file()


def test_a_journal_that_cannot_be_read_is_left_out(state_dir: Path) -> None:
    (folder, *_) = all_runs(state_dir)
    folder.journal.write_bytes(b"no journal")
    keep_metrics(folder, state_dir)
    assert not (state_dir / FILE).exists()


def test_counts_under_older_names_continue_under_the_new_ones() -> None:
    counters = [
        ["fleet_runs_begun", [], 3],
        ["fleet_gate_runs", ["red"], 2],
        ["fleet_reviews", ["critic", "nothing"], 5],
        ["fleet_review_findings", ["mended"], 4],
        ["fleet_checks", ["green"], 7],
    ]
    document = Tally().dump() | {"counters": counters}
    tally = Tally.loaded(document)
    assert tally.counters["fleet_runs_started"][()] == 3
    assert tally.counters["fleet_batches_tested"][("failed",)] == 2
    assert tally.counters["fleet_reviews"]["critic", "passed"] == 5
    assert tally.counters["fleet_review_findings"][("fixed",)] == 4
    assert tally.counters["fleet_checks"][("passed",)] == 7


def test_what_only_a_process_knows_is_not_written() -> None:
    tally = Tally()
    tally.observe("fleet_sandbox_command_seconds", 1.0)
    assert "fleet_sandbox_command_seconds" not in str(tally.dump())
