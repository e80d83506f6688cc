"""Runs of a kind of its own are carried out by the feature that has it."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.app.fleet import played, player_of
from fleet.core.facts import facts as f
from fleet.errors import FleetError
from tests.fleet.core.story import Story, plan_of


class Stub:
    """Of an engine, only its state is looked at."""

    state = replace(Story(plan=plan_of("one")).state, rehearsal=f.Rehearsal())


def test_a_run_like_any_other_has_no_player() -> None:
    assert player_of(Story(plan=plan_of("one")).state) is None


async def test_a_rehearsal_is_never_carried_out_like_another_run() -> None:
    nothing: Any = None
    engine: Any = Stub()
    with pytest.raises(FleetError, match="is a rehearsal, which this installation does not support"):
        await played(engine, nothing, nothing, {})
