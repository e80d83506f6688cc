"""The wide run's own looks: what they must see, on small results made by hand."""

from collections import Counter
from pathlib import Path

import pytest

from chaos.wide_levels import SERIES, Sample, growth_over_middle, html_plot, late_over_early, text_plot
from chaos.wide_work import FAULTS, PAIRED, WideWork
from tests.worktrees.conftest import git

LANDED = 300


def samples(descriptors: int = 0, disk: float = 1.0, late_disk: float = 1.0) -> list[Sample]:
    """A run that takes so many descriptors more with each landed subtask, and so much of the disk."""
    taken, made = 0.0, []
    for landed in range(LANDED + 1):
        taken += late_disk if 3 * landed > 2 * LANDED else disk
        made.append(Sample(landed, landed, 3, 50, 100 + descriptors * landed, 200.0, landed, 9 * landed, taken))
    return made


def test_what_stays_as_it_is_levels_off_and_what_grows_with_the_run_does_not() -> None:
    assert late_over_early(samples(), "descriptors") == 1
    assert late_over_early(samples(descriptors=1), "descriptors") > 1.25


def test_each_subtask_may_take_its_part_of_the_disk_but_not_more_and_more() -> None:
    assert growth_over_middle(samples(), "disk_mb") == pytest.approx(1)
    assert growth_over_middle(samples(late_disk=2.0), "disk_mb") == pytest.approx(2)


def test_the_plot_shows_every_series_and_loads_nothing() -> None:
    page = html_plot("<a run>", samples(), [100], "1 < 2")
    assert page.count("<svg") == len(SERIES) == len(list(text_plot(samples())))
    assert "<a run>" not in page
    assert not any(word in page for word in ("http", "src=", "@import", "<script"))


def test_one_in_twenty_meets_a_fault_every_kind_comes_up_and_pairs_are_pairs() -> None:
    work = WideWork(1_000, 0.05, seed=1)
    kinds = Counter(work.faults.values())
    assert (sum(kinds.values()), set(kinds)) == (50, set(FAULTS))
    shared = Counter(work.other_of(number) for number, kind in work.faults.items() if kind in PAIRED)
    assert set(shared.values()) == {2}


@pytest.fixture
def work() -> WideWork:
    return WideWork(len(FAULTS) + len(PAIRED), 1.0, seed=1)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "project"


def land(project: Path, work: WideWork, number: int, **more: str) -> None:
    """A commit as the fleet lands it: the subtask's file, and others of a mistake."""
    id_ = work.id_of(number)
    files = {work.file_of(number): f"{id_}\n", **{path.replace("__", "/"): text for path, text in more.items()}}
    if work.faults.get(number) == "conflict":
        other = project / work.other_of(number)
        files[work.other_of(number)] = f"{other.read_text()}{id_}\n"
    for path, text in files.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text, encoding="utf-8")
    git(project, "add", "-A")
    git(project, "commit", "--quiet", "-m", f"Write {id_}\n\nFleet-Task: {id_}")


def test_a_result_that_holds_all_work_has_nothing_wrong(project: Path, work: WideWork) -> None:
    base = work.make(project, 20)
    for number in range(work.subtasks):
        land(project, work, number)
    assert list(work.wrong(project, base, "main")) == []


def test_what_is_missing_stray_or_red_together_is_found(project: Path, work: WideWork) -> None:
    base = work.make(project, 20)
    pair = [number for number, fault in work.faults.items() if fault == "red together"]
    lonely = next(number for number, fault in work.faults.items() if fault not in PAIRED)
    for number in pair:
        other = work.other_of(number)
        land(project, work, number, **{f"{other}/{work.id_of(number)}": "alone\n"})
    land(project, work, lonely, stray="mine\n")
    found = "\n".join(work.wrong(project, base, "main"))
    assert "has a red tree" in found
    assert "does not hold the work of" in found
    assert "did not land" in found
