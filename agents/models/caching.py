"""Why a prompt was not read from the cache, in words for the transcript. Pure."""

from dataclasses import dataclass

from agents.models.answer import Answer
from agents.models.prices import limits_of
from fleet.core.usage import Usage

LIFETIME_S = 300.0
NEARLY = 0.9  # of what could be read: counts differ a little between calls


@dataclass(frozen=True, slots=True)
class Cached:
    """What the last call left in the cache."""

    model: str
    tokens: int
    at: float


def left_by(answer: Answer, model: str, now: float) -> Cached:
    return Cached(model, answer.usage.cache_read + answer.usage.cache_write, now)


def explained(usage: Usage, model: str, before: Cached | None, now: float, *, changed: str = "") -> str | None:
    """Why less was read than the last call left there; None where all was. `changed` says what we changed ourselves."""
    prompt = usage.input + usage.cache_read + usage.cache_write
    minimum = limits_of(model).cache_minimum_tokens
    if before is None:
        return None if usage.cache_read else _first(usage, prompt, minimum)
    if usage.cache_read >= NEARLY * before.tokens:
        return None if before.tokens or prompt < minimum else f"nothing was written before: below {minimum} tokens"
    if changed:
        return changed
    if before.model != model:
        return f"another model answered: {before.model} before, {model} now"
    if now - before.at > LIFETIME_S:
        return f"expired: {now - before.at:.0f} s since the last call"
    return "the service did not find it: evicted, or another machine answered"


def _first(usage: Usage, prompt: int, minimum: int) -> str:
    if usage.cache_write:
        return "the first call with this prefix wrote it"
    return f"below the least size: {prompt} tokens of {minimum}" if prompt < minimum else "the service cached nothing"
