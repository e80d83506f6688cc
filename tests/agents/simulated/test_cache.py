"""The simulated model counts caching as the real one does, so that a share of it means something."""

from agents.simulated.cache import LIFETIME_S, LOOKBACK, PromptCache

A, B, C = "a" * 8_000, "b" * 8_000, "c" * 8_000
MODEL = "claude-sonnet-5-5"


class Hours:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def cache(minimum: int | None = None) -> tuple[PromptCache, Hours]:
    hours = Hours()
    return PromptCache(hours, minimum), hours


def test_what_is_written_is_read_once_the_answer_has_begun_and_not_before() -> None:
    prompts, _ = cache()
    first = prompts.count(MODEL, [(A, True), (B, False)])
    assert (first.input, first.cache_write, first.cache_read) == (2_000, 2_000, 0)
    assert prompts.count(MODEL, [(A, True), (C, False)]).cache_write == 2_000
    first.begun()
    again = prompts.count(MODEL, [(A, True), (C, False)])
    assert (again.input, again.cache_write, again.cache_read) == (2_000, 0, 2_000)


def test_a_longer_prefix_reads_the_shorter_one_and_writes_the_rest() -> None:
    prompts, _ = cache()
    prompts.count(MODEL, [(A, True)]).begun()
    longer = prompts.count(MODEL, [(A, False), (B, True)])
    assert (longer.cache_read, longer.cache_write) == (2_000, 2_000)


def test_one_character_or_another_model_makes_another_prefix() -> None:
    prompts, _ = cache()
    prompts.count(MODEL, [(A, True)]).begun()
    assert prompts.count(MODEL, [(A + "!", True)]).cache_read == 0
    assert prompts.count("claude-opus-5-5", [(A, True)]).cache_read == 0


def test_short_prefixes_are_not_cached_and_how_short_depends_on_the_model() -> None:
    prompts, _ = cache()
    assert prompts.count(MODEL, [("a" * 4_000, True)]).cache_write == 0
    assert prompts.count("claude-haiku-5-5", [(A, True)]).cache_write == 0
    assert prompts.count("claude-haiku-5-5", [(A, False), (B, False), (C, True)]).cache_write == 6_000
    assert cache(0)[0].count(MODEL, [("a", True)]).cache_write == 1


def test_an_entry_lives_for_five_minutes_after_its_last_use() -> None:
    prompts, hours = cache()
    prompts.count(MODEL, [(A, True)]).begun()
    for _ in range(3):
        hours.now += LIFETIME_S - 1
        assert prompts.count(MODEL, [(A, True)]).cache_read == 2_000
    hours.now += LIFETIME_S + 1
    assert prompts.count(MODEL, [(A, True)]).cache_read == 0


def test_an_earlier_prefix_is_found_only_a_few_blocks_before_a_breakpoint() -> None:
    prompts, _ = cache()
    prompts.count(MODEL, [(A, True)]).begun()
    near = [(A, False), *[("x", False)] * (LOOKBACK - 1), (B, True)]
    far = [(A, False), *[("x", False)] * LOOKBACK, (B, True)]
    assert prompts.count(MODEL, near).cache_read == 2_000
    assert prompts.count(MODEL, far).cache_read == 0
    assert prompts.count(MODEL, [(A, True), *far[1:]]).cache_read == 2_000
