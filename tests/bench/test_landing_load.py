"""Whether the merge queue keeps up, in simulation: a small version of `python -m bench load`."""

from bench.landing_load import AN_HOUR, WORKERS, LandingLoad


def test_at_two_hundred_an_hour_with_a_gate_of_ten_seconds_the_queue_does_not_grow() -> None:
    load = LandingLoad(WORKERS, WORKERS * 3600 / AN_HOUR, AN_HOUR * 2)
    load.run()
    assert load.story.state.ending == "landed"
    assert load.hourly_lengths()[1] < 5
    assert load.longest_wait < 600


def test_quick_work_lands_while_a_hundred_workers_are_at_it() -> None:
    eager = LandingLoad(100, 1.0, 300)
    eager.run()
    assert eager.landed_at_work > 50
    assert max(length for _, length in eager.lengths) < 100


def test_what_is_red_in_its_first_attempt_lands_in_its_second() -> None:
    load = LandingLoad(10, 60.0, 100)
    load.run()
    attempts = [len(subtask.attempts) for subtask in load.story.state.subtasks.values()]
    assert set(attempts) == {1, 2}
