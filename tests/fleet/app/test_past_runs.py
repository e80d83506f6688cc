"""What past runs say about rungs and subtasks: of the same repository and the same kind, however many there are."""

from pathlib import Path

import pytest

from fleet.app.past_runs import KEPT, past_evidence
from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.fleet.core.story import Story, plan_of


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "here" / ".git").mkdir(parents=True)
    return tmp_path / "here"


def write_run(state_dir: Path, name: str, repository: Path, **changes: object) -> None:
    """A run in which one attempt failed for fifty cents, and the next one landed."""
    story = Story(plan=plan_of("api", failure_action="retry"))
    for _ in range(2):
        story.worker_starts("api")
        story.model_is_called("api", dollars=0.5)
        if story.current("api").number == 1:
            story.attempt_fails("api")
            story.time_passes_to_the_next_wake()
    story.landed("api")
    first = story.facts[0].model_copy(update={"run": name, "repository": str(repository), **changes})
    (state_dir / "runs" / name).mkdir(parents=True)
    with Journal.create(RunFolder(state_dir / "runs" / name).journal) as journal:
        journal.append([f.FACT.validate_python(first.model_dump()), *story.facts[1:]])


def test_the_runs_of_a_repository_are_added_up(tmp_path: Path, repository: Path) -> None:
    for name in ("one", "two"):
        write_run(tmp_path, name, repository)
    found = past_evidence(tmp_path, repository, simulated=False)
    assert found.runs == 2
    [tally] = found.tallies
    assert (tally.worker, tally.effort, tally.size) == ("coder", None, "medium")
    assert (tally.landed, tally.failed, tally.priced, tally.dollars) == (2, {"check": 2}, 4, 2.0)


def test_other_repositories_rehearsals_and_another_kind_of_model_say_nothing(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "there" / ".git").mkdir(parents=True)
    write_run(tmp_path, "elsewhere", tmp_path / "there")
    write_run(tmp_path, "simulated", repository, simulated=True)
    write_run(tmp_path, "rehearsal", repository, rehearsal=f.Rehearsal())
    assert past_evidence(tmp_path, repository, simulated=False).tallies == ()
    assert past_evidence(tmp_path, repository, simulated=True).runs == 1


def test_a_broken_journal_is_left_out(tmp_path: Path, repository: Path) -> None:
    write_run(tmp_path, "whole", repository)
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "journal.db").write_bytes(b"none")
    assert past_evidence(tmp_path, repository, simulated=False).runs == 1


def test_only_as_much_is_read_as_takes_a_moment(tmp_path: Path, repository: Path) -> None:
    for name in ("one", "two", "three"):
        write_run(tmp_path, name, repository)
    assert past_evidence(tmp_path, repository, simulated=False, most_facts=5).runs == 0
    assert past_evidence(tmp_path, repository, simulated=False, most_runs=2).runs == 2


def test_what_an_ended_run_says_is_read_from_its_journal_once(tmp_path: Path, repository: Path) -> None:
    write_run(tmp_path, "one", repository)
    first = past_evidence(tmp_path, repository, simulated=False).tallies
    assert past_evidence(tmp_path, repository, simulated=False, most_facts=0).tallies == first
    kept = tmp_path / "runs" / "one" / KEPT
    kept.write_text("{")
    damaged = past_evidence(tmp_path, repository, simulated=False, most_facts=0)
    assert damaged.runs == 0, "what is damaged counts as missing"
    assert past_evidence(tmp_path, repository, simulated=False).tallies == first


def test_what_was_kept_of_a_run_that_went_on_is_read_again(tmp_path: Path, repository: Path) -> None:
    write_run(tmp_path, "one", repository)
    past_evidence(tmp_path, repository, simulated=False)
    with Journal(RunFolder(tmp_path / "runs" / "one").journal) as journal:
        journal.append([f.RunReopened(at=1000.0, by="ada")])
    assert past_evidence(tmp_path, repository, simulated=False, most_facts=0).runs == 0


def test_landed_subtasks_of_all_runs_are_compared_with_each_other(tmp_path: Path, repository: Path) -> None:
    for number in range(4):
        write_run(tmp_path, f"run{number}", repository)
    assert past_evidence(tmp_path, repository, simulated=False).estimates == ()
    write_run(tmp_path, "last", repository)
    [estimate] = past_evidence(tmp_path, repository, simulated=False).estimates
    assert (estimate.worker, estimate.size, estimate.landed) == ("coder", "medium", 5)
    assert estimate.dollars == f.Spread(median=1.0, low=1.0, high=1.0), "both attempts of each are in it"


def test_without_runs_there_is_no_evidence(tmp_path: Path, repository: Path) -> None:
    assert past_evidence(tmp_path, repository, simulated=False).tallies == ()
