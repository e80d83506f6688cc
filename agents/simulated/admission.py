"""Accepts or rejects requests: all rules of the service, in the order of its checks."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from agents.simulated.prompt import (
    Body,
    PromptCache,
    PromptPiece,
    PromptTokens,
    RequestError,
    check_marks,
    pieces_of,
    read_body,
    tokens,
)
from agents.simulated.rules import (
    BINDING_BETA,
    Binding,
    Fingerprints,
    ModelRules,
    check_lacking,
    check_parameters,
    check_shape,
    check_thinking,
    check_turns,
    model_rules,
)
from agents.simulated.script import FaultWindow, Script, ServiceLimits


@dataclass(frozen=True, slots=True)
class Admitted:
    """An accepted request, and the rules for its answer."""

    body: Body
    rules: ModelRules
    prompt: PromptTokens
    pieces: list[PromptPiece]
    binding: Binding
    thinks: bool
    summarized: bool
    """Whether thinking is returned as a summary, instead of only a signature."""
    effort: str
    diagnostics: dict[str, Any] | None
    transformations: list[dict[str, str]] | None
    """The parts dropped from the request, if it allows that."""


class Rulebook:
    """The state of the service, and the checks of a new request."""

    def __init__(self, script: Script, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = FamilyLimits(script.limits, now)
        self.fingerprints = Fingerprints()
        self._script = script
        self._cache = PromptCache(now)

    def admit(self, data: Any, headers: Mapping[str, str]) -> Admitted:
        """Check a request. Raises `RequestError` with the message of the real service."""
        betas = frozenset(name.strip() for name in headers.get("anthropic-beta", "").split(","))
        check_shape(data, betas=betas)
        rules = self.rules(data["model"])
        check_lacking(data, self._script.lacks, terse=self._script.terse)
        check_turns(data["messages"])
        check_parameters(data, rules)
        pieces = pieces_of(data)
        check_marks(pieces)
        thinking = data.get("thinking") or {}
        behaviour = (thinking.get("block_binding") or {}).get("prefix_mismatch_behavior")
        binding = check_thinking(pieces, rules.id, drop=behaviour == "drop_block")
        effort = (data.get("output_config") or {}).get("effort") or rules.effort
        prompt = self._count(rules, effort, pieces)
        wait = self.limits.admit(rules.line, prompt.input + prompt.cache_write)
        if wait is not None:
            raise RequestError("This request would exceed your rate limit", 429, retry_after=wait, family=rules.line)
        return Admitted(
            body=read_body(data),
            rules=rules,
            prompt=prompt,
            pieces=pieces,
            binding=binding,
            thinks=thinking.get("type", "adaptive") == "adaptive" and "thinking" not in self._script.lacks,
            summarized=thinking.get("display") == "summarized",
            effort=effort,
            diagnostics=self.fingerprints.compare(data.get("diagnostics"), rules.id, pieces),
            transformations=[each.record() for each in binding.dropped] if BINDING_BETA in betas else None,
        )

    def rules(self, model: str) -> ModelRules:
        """Return the rules of a model. Raises `RequestError` if it does not exist."""
        return model_rules(model, self._script.models)

    def count(self, data: Any) -> int:
        """Count the tokens of a prompt, for `count_tokens`. Raises `RequestError`."""
        check_shape(data, betas=frozenset(), counting=True)
        self.rules(data["model"])
        check_turns(data["messages"])
        return tokens(sum(len(piece.role) + len(piece.text) for piece in pieces_of(data)))

    def _count(self, rules: ModelRules, effort: str, pieces: list[PromptPiece]) -> PromptTokens:
        minimum = self._script.cache_minimum_tokens
        prompt = self._cache.count(
            f"{rules.id} {effort}", pieces, rules.cache_minimum_tokens if minimum is None else minimum
        )
        if prompt.total > rules.context_tokens:
            raise RequestError(f"prompt is too long: {prompt.total} tokens > {rules.context_tokens} maximum")
        return prompt


# ---- limits ----------------------------------------------------------------------------------------------------------
# Rejections of valid calls: rate limits and fault windows. The time is passed in.


MINUTE = 60.0


class TokenBucket:
    """A limit per minute, which refills evenly."""

    def __init__(self, limit: float, burst_s: float, now: float) -> None:
        self.limit = limit
        self.full = max(1.0, limit * burst_s / MINUTE)
        self.level, self._at = self.full, now

    def refill(self, now: float) -> None:
        minutes, self._at = max(0.0, now - self._at) / MINUTE, now
        self.level = min(self.full, self.level + minutes * self.limit)

    def wait_s(self, need: float) -> float | None:
        """Return the seconds until this much is available; None if it is."""
        missing = min(need, self.full) - self.level
        return missing * MINUTE / self.limit if missing > 0 else None


class Limiter:
    """The limits of a family of models: requests, input and output tokens. `max_tokens` is not counted."""

    def __init__(self, limits: ServiceLimits, now: float) -> None:
        output = limits.output_tokens_per_minute or limits.tokens_per_minute
        self._limits = limits
        self._requests = TokenBucket(limits.requests_per_minute, limits.burst_s, now)
        self._input = TokenBucket(limits.tokens_per_minute, limits.burst_s, now)
        self._output = TokenBucket(output, limits.burst_s, now)

    def admit(self, now: float, tokens: int) -> float | None:
        """Return None if the request is accepted, otherwise the seconds until a retry."""
        for bucket in (self._requests, self._input, self._output):
            bucket.refill(now)
        needs = ((self._requests, 1.0), (self._input, float(tokens)), (self._output, 1.0))
        wait = next((wait for bucket, need in needs if (wait := bucket.wait_s(need)) is not None), None)
        if wait is None:
            self._requests.level -= 1
            self._input.level = max(0.0, self._input.level - tokens)
        return wait

    def answered(self, tokens: int) -> None:
        """Count an answer of this length."""
        self._output.level = max(0.0, self._output.level - tokens)

    def headers(self, today: datetime) -> dict[str, str]:
        """Return the current `anthropic-ratelimit-*` headers."""
        if not self._limits.named:
            return {}
        buckets = {"requests": self._requests, "tokens": self._input, "input-tokens": self._input}
        headers: dict[str, str] = {}
        for kind, bucket in {**buckets, "output-tokens": self._output}.items():
            full = today + timedelta(seconds=(bucket.limit - bucket.level) * MINUTE / bucket.limit)
            headers[f"anthropic-ratelimit-{kind}-limit"] = str(int(bucket.limit))
            headers[f"anthropic-ratelimit-{kind}-remaining"] = str(int(bucket.level))
            headers[f"anthropic-ratelimit-{kind}-reset"] = full.strftime("%Y-%m-%dT%H:%M:%SZ")
        return headers


class FamilyLimits:
    """The limits of all families of models."""

    def __init__(self, limits: ServiceLimits, now: Callable[[], float]) -> None:
        self._limits, self._now = limits, now
        self._families: dict[str, Limiter] = {}

    def admit(self, line: str, tokens: int) -> float | None:
        return self._of(line).admit(self._now(), tokens)

    def answered(self, line: str, tokens: int) -> None:
        self._of(line).answered(tokens)

    def headers(self, line: str, today: datetime) -> dict[str, str]:
        return self._of(line).headers(today)

    def _of(self, line: str) -> Limiter:
        if line not in self._families:
            self._families[line] = Limiter(self._limits, self._now())
        return self._families[line]


class FaultSchedule:
    """The fault windows of a script, relative to the first call. A share of the calls in a window fails."""

    def __init__(self, windows: Sequence[FaultWindow], seed: int) -> None:
        self._windows = windows
        self._chance = Random(seed)  # noqa: S311 - not security-relevant
        self._began: float | None = None
        self._calls = 0

    def fault_at(self, now: float) -> FaultWindow | None:
        """Return the window whose fault affects a call at this time, or None."""
        self._began = now if self._began is None else self._began
        self._calls += 1
        for window in self._windows:
            if self._is_within(window, now - self._began) and self._chance.random() < window.share:
                return window
        return None

    def _is_within(self, window: FaultWindow, passed: float) -> bool:
        last = self._calls if window.last_call is None else window.last_call
        return window.from_s <= passed < window.to_s and window.first_call <= self._calls <= last
