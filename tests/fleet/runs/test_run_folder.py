"""The folder of a run: its journal is replayed without collections of garbage, which are on again afterwards."""

import gc
from pathlib import Path

import pytest

from fleet.core.facts import facts as f
from fleet.core.history.evolve import SLICE
from fleet.errors import FleetError
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.fleet.core.story import Story, plan_of


def test_collections_of_garbage_wait_for_a_replay_and_for_nothing_after_it(tmp_path: Path) -> None:
    story, during = Story(plan=plan_of("a")), list[bool]()
    run = RunFolder(tmp_path / "r")
    with Journal.create(run.journal) as journal:
        with pytest.raises(FleetError, match="is empty"):
            run.state()
        assert gc.isenabled()
        journal.append([*story.facts, *(f.WarningNoted(at=0, text=str(number)) for number in range(2 * SLICE))])
    state = run.state(lambda *_: during.append(gc.isenabled()))
    assert len(state.warnings) == 2 * SLICE
    assert (set(during), gc.isenabled()) == ({False}, True)


def test_collections_that_were_off_stay_off(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "r")
    with Journal.create(run.journal) as journal:
        journal.append(Story().facts)
    gc.disable()
    try:
        run.state()
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("frozen", [False, True])
def test_what_was_read_is_not_looked_at_at_once_and_what_is_frozen_stays_so(tmp_path: Path, *, frozen: bool) -> None:
    run = RunFolder(tmp_path / "r")
    with Journal.create(run.journal) as journal:
        journal.append(Story().facts)
    gc.collect()
    (gc.freeze if frozen else gc.unfreeze)()
    try:
        state = run.state()
        assert any(each is state for each in gc.get_objects(generation=2)) is not frozen
        assert (gc.get_freeze_count() > 0) is frozen
    finally:
        gc.unfreeze()
