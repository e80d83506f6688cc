"""Many journals are followed at once: every fact is seen once, whatever happens to the runs."""

from pathlib import Path

import pytest

from dashboards.metrics.counted_runs import CountedRuns
from fleet.core.facts import facts as f
from fleet.read.follow import Step
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder, all_runs
from tests.fleet.core.story import Story, plan_of


class Seen:
    """The facts that a watcher got."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def take(self, it: Step) -> None:
        assert it.is_first == (it.fact.kind == "run_started")
        self.kinds.append(it.fact.kind)


def write(state_dir: Path, run: str, facts: list[f.Fact]) -> RunFolder:
    folder = RunFolder(state_dir / "runs" / run)
    if not folder.journal.exists():
        Journal.create(folder.journal).close()
    with Journal(folder.journal) as journal:
        journal.append(facts)
    return folder


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def runs(tmp_path: Path, seen: Seen) -> CountedRuns:
    return CountedRuns(lambda: all_runs(tmp_path), seen.take, clock=lambda: 100.0)


def test_new_facts_are_seen_once_in_their_order(tmp_path: Path, runs: CountedRuns, seen: Seen) -> None:
    story = Story(plan=plan_of("api"))
    write(tmp_path, "a", story.facts)
    runs.refresh()
    runs.refresh()
    assert seen.kinds == [fact.kind for fact in story.facts]
    count = len(story.facts)
    story.landed("api")
    write(tmp_path, "a", story.facts[count:])
    runs.refresh()
    assert seen.kinds == [fact.kind for fact in story.facts]
    assert runs.lag_s == 100.0


def test_an_ended_run_that_is_reopened_continues_where_it_was(tmp_path: Path, runs: CountedRuns, seen: Seen) -> None:
    story = Story(plan=plan_of("api"))
    story.happens(f.CancelRequested(at=0, by="ada"))
    write(tmp_path, "a", story.facts)
    runs.refresh()
    assert list(runs.open(0)) == []
    assert runs.ended() == {"cancelled": 1}
    count = len(story.facts)
    story.happens(f.RunReopened(at=1, by="ada"))
    write(tmp_path, "a", story.facts[count:])
    runs.refresh()
    assert seen.kinds == [fact.kind for fact in story.facts]
    (run,) = runs.open(0)
    assert (run.run, run.alive) == ("r", False)


def test_a_run_that_is_gone_is_forgotten_and_stays_counted(tmp_path: Path, runs: CountedRuns, seen: Seen) -> None:
    folder = write(tmp_path, "a", Story(plan=plan_of("api")).facts)
    runs.refresh()
    count = len(seen.kinds)
    folder.remove()
    runs.refresh()
    assert list(runs.open(0)) == []
    assert len(seen.kinds) == count


def test_a_damaged_journal_hides_no_other(tmp_path: Path, runs: CountedRuns) -> None:
    bad = write(tmp_path, "a", Story(plan=plan_of("api")).facts)
    bad.journal.write_bytes(b"this is not a database at all" * 200)
    write(tmp_path, "b", Story(plan=plan_of("api")).facts)
    runs.refresh()
    assert runs.unreadable() == 1
    assert len(list(runs.open(0))) == 1
    assert runs.journal_bytes() > 0
