"""The chaos program of errors of ours: a share of its places, all advice, and that it notices what it is for."""

from collections.abc import Iterator

import pytest

from chaos import errors
from chaos.errors import RUNS, cost, costs
from chaos.raising import Place, called
from fleet.core.state import facts as f
from fleet.engine.commands.landing import Lander
from fleet.engine.errors import internal_errors
from fleet.engine.errors.internal_errors import Advice


def test_an_exception_in_any_of_a_share_of_the_places_costs_nothing() -> None:
    played = [each for each in costs(share=12) if each.raised]
    assert [each for each in played if not each.is_free] == []
    assert len({each.place for each in played}) >= 40


def places(run: str, **wanted: bool) -> Iterator[Place]:
    return (place for place in called(RUNS[run]) if place.is_advice == wanted["advice"])


def test_what_only_informs_people_and_models_is_known_as_advice() -> None:
    names = {place.name for place in places("planned", advice=True)}
    assert names >= {
        "briefs.WorkerBriefs._layout",
        "briefs.WorkerBriefs._notes",
        "briefs.WorkerBriefs.failure_of",
        "briefs.planner_notes",
        "change_review.ChangeReview.warnings",
        "oddities.oddities",
        "lint.grade_revision",
    }


def test_work_that_is_paid_for_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were errors of ours taken for the machine's, the work would be done again."""
    monkeypatch.setattr(internal_errors, "is_scarce", lambda _: True)
    place = next(place for place in places("given", advice=False) if place.name == "fakes.FakeLease.commit")
    assert cost(place, "given", "always").again > 0


def test_advice_that_fails_a_run_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    place = next(place for place in places("given", advice=True) if place.name == "oddities.oddities")

    def pass_on(_: Advice, what: str, error: Exception) -> None:
        raise RuntimeError(what) from error

    monkeypatch.setattr(Advice, "leave_out", pass_on)
    assert cost(place, "given", "always").spoiled


def test_a_run_that_does_not_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "LIMIT_S", 0.5)
    monkeypatch.setattr("fleet.engine.loop.Engine._is_stuck", lambda _engine, _lanes: False)
    place = next(place for place in places("given", advice=False) if place.name == "endings.end_run")
    assert cost(place, "given", "always").hung


def test_what_one_subtask_keeps_from_landing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a batch that can't be landed sent back as a whole, those beside the one that raises would not land."""
    place = next(place for place in places("given", advice=False) if place.name == "landing._tested")
    assert cost(place, "given", "about").is_free

    async def give_up(self: Lander, number: int, failure: f.Failure) -> None:
        batch = self.engine.state.landing.open_batch(number)
        members = batch.members if batch is not None else ()
        ejected = (f.Ejected(subtask=each.subtask, attempt=each.attempt, failure=failure) for each in members)
        await self._record(number, ejected=tuple(ejected))

    monkeypatch.setattr(Lander, "give_up", give_up)
    assert cost(place, "given", "about").kept > 0
