"""What is reserved for an answer: what answers usually take, never below the floor."""

from agents.models.prices import ENOUGH, FLOOR, AnswerLengths, usual_length


def test_before_enough_answers_were_seen_the_floor_counts() -> None:
    lengths = AnswerLengths()
    for _ in range(ENOUGH - 1):
        lengths.saw("m", 60_000)
    assert lengths.usual("m", 64_000) == FLOOR
    lengths.saw("m", 60_000)
    assert lengths.usual("m", 64_000) == 64_000
    assert lengths.usual("other", 64_000) == FLOOR


def test_short_answers_do_not_lower_it_below_the_floor_and_a_short_limit_does() -> None:
    assert usual_length(tuple([100] * 50)) == FLOOR
    assert AnswerLengths().usual("m", 1000) == 1000


def test_it_is_a_high_percentile_and_not_the_longest_answer_that_was_ever_seen() -> None:
    assert usual_length(tuple([1_000] * 199 + [100_000])) == FLOOR
    assert usual_length(tuple([20_000] * 150 + [30_000] * 50)) == 37_500
