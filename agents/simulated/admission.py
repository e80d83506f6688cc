"""Admits a request or refuses it: all rules of the service, in the order in which it checks them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.simulated.body import Body, read_body
from agents.simulated.limits import FamilyLimits
from agents.simulated.rules.cache import PromptCache, PromptTokens, check_marks, tokens
from agents.simulated.rules.catalogue import ModelRules, check_parameters, model_rules
from agents.simulated.rules.diagnostics import Fingerprints
from agents.simulated.rules.lacking import check_lacking
from agents.simulated.rules.prompt import Piece, pieces_of
from agents.simulated.rules.refusal import RequestError
from agents.simulated.rules.shape import BINDING_BETA, check_shape, check_turns
from agents.simulated.rules.thinking import Binding, check_thinking
from agents.simulated.script import Script


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that keeps all rules, and what they say about its answer."""

    body: Body
    rules: ModelRules
    prompt: PromptTokens
    pieces: list[Piece]
    binding: Binding
    thinks: bool
    summarized: bool
    """Whether thinking is returned as a summary, or as a signature alone."""
    effort: str
    diagnostics: dict[str, Any] | None
    transformations: list[dict[str, str]] | None
    """What was dropped of the request, if it asked for that."""


class Rulebook:
    """What the service remembers of earlier requests, and the checks of a new one."""

    def __init__(self, script: Script, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = FamilyLimits(script.limits, now)
        self.fingerprints = Fingerprints()
        self._script = script
        self._cache = PromptCache(now)

    def admit(self, data: Any, headers: Mapping[str, str]) -> Admitted:
        """Raises `RequestError` with what the real service would say."""
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
        """Raises `RequestError` for a model that does not exist."""
        return model_rules(model, self._script.models)

    def count(self, data: Any) -> int:
        """The tokens of a prompt, for `count_tokens`. Raises `RequestError`."""
        check_shape(data, betas=frozenset(), counting=True)
        self.rules(data["model"])
        check_turns(data["messages"])
        return tokens(sum(len(piece.role) + len(piece.text) for piece in pieces_of(data)))

    def _count(self, rules: ModelRules, effort: str, pieces: list[Piece]) -> PromptTokens:
        minimum = self._script.cache_minimum_tokens
        prompt = self._cache.count(
            f"{rules.id} {effort}", pieces, rules.cache_minimum_tokens if minimum is None else minimum
        )
        if prompt.total > rules.context_tokens:
            raise RequestError(f"prompt is too long: {prompt.total} tokens > {rules.context_tokens} maximum")
        return prompt
