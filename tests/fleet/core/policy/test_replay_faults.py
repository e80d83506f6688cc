"""The faults of a rehearsal: as many as were asked for, of all kinds, the same each time, and never for ever."""

from fleet.core.policy.replay_faults import CHECK_FAULTS, LATEST, WORK_FAULTS, check_fault, kills, work_fault
from fleet.core.state.facts import Rehearsal

MANY = 2000


def test_the_share_is_the_one_that_was_asked_for_and_all_kinds_occur() -> None:
    rehearsal = Rehearsal(faults=0.2, seed=1)
    work = [work_fault(rehearsal, f"s{number}", 1) for number in range(MANY)]
    checks = [check_fault(rehearsal, f"{number:040}") for number in range(MANY)]
    for drawn, kinds in ((work, set(WORK_FAULTS)), (checks, set(CHECK_FAULTS))):
        assert 0.15 < sum(fault is not None for fault in drawn) / MANY < 0.25
        assert {fault for fault in drawn if fault is not None} == kinds


def test_a_seed_decides() -> None:
    first, again, other = (
        [work_fault(Rehearsal(faults=0.5, seed=seed), f"s{number}", 1) for number in range(50)] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_late_attempt_meets_none() -> None:
    assert work_fault(Rehearsal(faults=1.0), "s", LATEST) is not None
    assert work_fault(Rehearsal(faults=1.0), "s", LATEST + 1) is None


def test_without_faults_nothing_goes_wrong() -> None:
    assert all(work_fault(Rehearsal(), f"s{number}", 1) is None for number in range(50))
    assert kills(Rehearsal(), 100) == ()


def test_kills_are_spread_over_the_run() -> None:
    assert kills(Rehearsal(faults=0.2), 100) == (20, 40, 60, 80)
    assert kills(Rehearsal(faults=0.1), 3) == (1,)
