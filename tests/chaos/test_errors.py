"""The chaos program of errors of ours: a share of its places, all advice, and that it notices what it is for."""

from collections.abc import Iterator

import pytest

from chaos.errors import RUNS, cost, costs, given_run
from chaos.raising import Place, called
from fleet.core.facts import facts as f
from fleet.ports.agents import WorkerBrief
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import DONE, FakeFleet, FakeWorker


@pytest.mark.parametrize(("share", "least"), [(48, 10), pytest.param(12, 40, marks=pytest.mark.thorough)])
def test_an_exception_in_any_of_a_share_of_the_places_costs_nothing(share: int, least: int) -> None:
    played = [each for each in costs(share=share) if each.raised]
    assert [each for each in played if not each.is_free] == []
    assert len({each.place for each in played}) >= least


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
        "suspicious_changes.oddities",
        "lint.grade_revision",
    }


def test_work_that_is_paid_for_twice_is_noticed() -> None:
    def works(brief: WorkerBrief) -> f.Report:
        fleet.worker.paid[brief.subtask.id] += 1  # as if it had called its model before
        return DONE

    fleet = FakeFleet(plan_of("a", "b"), worker=FakeWorker(works))
    place = next(place for place in places("given", advice=False) if place.name == "fakes.FakeLease.commit")
    assert cost(place, "given", "always", fleet=fleet).again == 2


def test_advice_that_fails_a_run_is_noticed() -> None:
    place = next(place for place in places("given", advice=True) if place.name == "suspicious_changes.oddities")
    assert cost(place, "given", "always").is_free
    assert cost(place, "given", "always", fleet=one_conflicts()).spoiled


def test_a_run_that_does_not_end_is_noticed() -> None:
    fleet = FakeFleet(plan_of("a"), worker=FakeWorker(slow={"a"}))
    place = next(place for place in places("given", advice=False) if place.name == "endings.end_run")
    assert cost(place, "given", "always", fleet=fleet, limit_s=0.5).hung


def test_what_one_subtask_keeps_from_landing_is_noticed() -> None:
    place = next(place for place in places("given", advice=False) if place.name == "landing._tested")
    assert cost(place, "given", "about").is_free
    assert cost(place, "given", "about", fleet=one_conflicts()).kept == 2, "the one, and another that needs it"


def one_conflicts() -> FakeFleet:
    """The given run, in which one subtask never merges."""
    fleet = given_run()
    fleet.integrator.conflicting.add("a")
    return fleet
