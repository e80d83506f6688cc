"""Caching is counted as the service counts it, so that a share of it means something. Each test quotes its rule."""

import pytest

from agents.simulated.admission import Rulebook
from agents.simulated.prompt import (
    LIFETIME_S,
    LOOKBACK,
    Lifetime,
    PromptCache,
    PromptPiece,
    PromptTokens,
    RequestError,
    check_marks,
)
from agents.simulated.script import parse_script

A, B, C = "a" * 7_996, "b" * 7_996, "c" * 7_996  # 2,000 tokens each, with the role
MODEL = "claude-sonnet-5-5"
MINUTE = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Cache:
    def __init__(self) -> None:
        self.clock = Clock()
        self.prompts = PromptCache(self.clock)

    def count(self, *blocks: PromptPiece, model: str = MODEL, minimum: int = 512) -> PromptTokens:
        return self.prompts.count(model, blocks, minimum)


def piece(
    text: str, mark: Lifetime | None = None, *, type_: str = "text", path: str = "messages.0.content.0"
) -> PromptPiece:
    return PromptPiece(path, "user", type_, text, mark, {})


def test_what_is_written_is_read_once_the_answer_has_begun_and_not_before() -> None:
    cache = Cache()
    first = cache.count(piece(A, "5m"), piece(B))
    assert (first.input, first.cache_write, first.cache_read) == (2_000, 2_000, 0)
    assert cache.count(piece(A, "5m"), piece(C)).cache_write == 2_000
    first.begun()
    again = cache.count(piece(A, "5m"), piece(C))
    assert (again.input, again.cache_write, again.cache_read) == (2_000, 0, 2_000)


def test_a_longer_prefix_reads_the_shorter_one_and_writes_the_rest() -> None:
    cache = Cache()
    cache.count(piece(A, "5m")).begun()
    longer = cache.count(piece(A), piece(B, "5m"))
    assert (longer.cache_read, longer.cache_write) == (2_000, 2_000)


def test_one_character_or_another_model_makes_another_prefix() -> None:
    cache = Cache()
    cache.count(piece(A, "5m")).begun()
    assert cache.count(piece(A + "!", "5m")).cache_read == 0
    assert cache.count(piece(A, "5m"), model="claude-opus-5-5").cache_read == 0


def test_another_effort_makes_another_prefix() -> None:
    """Rule: "set for a conversation (a change breaks the cache)"."""
    rulebook = Rulebook(parse_script({}))

    def read(effort: str | None) -> int:
        chosen = {} if effort is None else {"output_config": {"effort": effort}}
        system = [{"type": "text", "text": A, "cache_control": {"type": "ephemeral"}}]
        messages = [{"role": "user", "content": "Go on."}]
        admitted = rulebook.admit(
            {"model": "claude-haiku-5-5", "max_tokens": 100, "system": system, "messages": messages, **chosen}, {}
        )
        admitted.prompt.begun()
        return admitted.prompt.cache_read

    assert [read("low"), read("high"), read("low") > 0] == [0, 0, True]
    assert [read(None), read("medium") > 0] == [0, True], "haiku tries at medium effort by itself"


def test_short_prefixes_are_not_cached() -> None:
    """Rule: "cacheable prompt at least: 512 tokens"."""
    cache = Cache()
    assert cache.count(piece("a" * 2_000, "5m")).cache_write == 0
    assert cache.count(piece("a" * 2_100, "5m")).cache_write == 526


def test_an_entry_lives_from_the_start_of_the_request_that_wrote_it() -> None:
    """Rule: "Lifetime five minutes from the *start* of the request that wrote or read it"."""
    cache = Cache()
    slow = cache.count(piece(A, "5m"))
    cache.clock.now = 4 * MINUTE  # the answer begins late
    slow.begun()
    cache.clock.now = 4.9 * MINUTE
    assert cache.count(piece(A, "5m")).cache_read == 2_000  # which begins its time anew
    cache.clock.now = 9.8 * MINUTE
    assert cache.count(piece(A, "5m")).cache_read == 2_000
    cache.clock.now = 14.9 * MINUTE
    assert cache.count(piece(A, "5m")).cache_read == 0


def test_a_test_run_of_six_minutes_loses_the_conversation_unless_it_is_kept_for_an_hour() -> None:
    """Rule: "a test run of six minutes loses the conversation. … or `ttl: "1h"` where pauses are long"."""
    for lifetime, read in (("5m", 0), ("1h", 2_000)):
        cache = Cache()
        cache.count(piece(A, lifetime)).begun()  # type: ignore[arg-type] # one of the two lifetimes
        cache.clock.now = 6 * MINUTE
        assert cache.count(piece(A, "5m")).cache_read == read
    assert LIFETIME_S == {"5m": 300, "1h": 3600}


def test_tokens_are_written_for_the_time_their_mark_names() -> None:
    """Rule: "Writes to the cache for an hour cost 2 times the input price, for five minutes 1.25 times"."""
    cache = Cache()
    first = cache.count(piece(A, "1h"), piece(B, "5m"), piece(C))
    assert (first.cache_write, first.cache_write_1h, first.input) == (4_000, 2_000, 2_000)
    first.begun()
    again = cache.count(piece(A, "1h"), piece(B, "5m"), piece(C, "5m"))
    assert (again.cache_read, again.cache_write, again.cache_write_1h) == (4_000, 2_000, 0)


def test_a_mark_looks_back_over_twenty_blocks() -> None:
    """Rule: "a mark looks back over 20 blocks"."""
    assert LOOKBACK == 20
    cache = Cache()
    cache.count(piece(A, "5m")).begun()
    near = [piece(A), *[piece("x")] * (LOOKBACK - 1), piece(B, "5m")]
    far = [piece(A), *[piece("x")] * LOOKBACK, piece(B, "5m")]
    assert cache.count(*near).cache_read == 2_000
    assert cache.count(*far).cache_read == 0
    assert cache.count(piece(A, "5m"), *far[1:]).cache_read == 2_000


def test_there_are_at_most_four_marks() -> None:
    """Rule: "At most four marks"."""
    check_marks([piece("x", "5m")] * 4)
    with pytest.raises(RequestError, match=r"maximum of 4 blocks with cache_control may be provided\. Found 5"):
        check_marks([piece("x", "5m")] * 5)


def test_entries_of_an_hour_stand_before_entries_of_five_minutes() -> None:
    """Rule: "entries of an hour stand before entries of five minutes"."""
    check_marks([piece("x", "1h"), piece("x", "5m")])
    with pytest.raises(RequestError, match="must not come after"):
        check_marks([piece("x", "5m"), piece("x", "1h")])


def test_thinking_carries_no_mark() -> None:
    with pytest.raises(RequestError, match="cannot be set for `thinking`"):
        check_marks([piece("x", "5m", type_="thinking")])
