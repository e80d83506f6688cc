"""The models that exist: what they accept, what they can do, and what they cost.

The figures are the service's own, apart from the product's table, so that a mistake in the one shows in a test of both.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from agents.simulated.prompt import RequestError

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_RELEASED = "2026-10-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Rates:
    """Dollars per million tokens. What is written to the cache costs a multiple of the input price."""

    input: float
    output: float
    read: float
    written: float = 1.25
    """For five minutes."""
    written_for_an_hour: float = 2.0
    band_tokens: int | None = None
    """A prompt above this many tokens costs `band_factor` times as much, answer included."""
    band_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelRules:
    """One model."""

    id: str
    name: str
    line: str
    rates: Rates = field(default_factory=lambda: Rates(1.0, 5.0, 0.1))
    context_tokens: int = 1_000_000
    output_tokens: int = 128_000
    cache_minimum_tokens: int = 512
    effort: str = "medium"
    """The effort of a request that names none."""
    thinking_types: frozenset[str] = frozenset({"adaptive", "disabled", "between_tools"})

    def info(self) -> dict[str, Any]:
        """The answer of `GET /v1/models`."""

        def supported(*, yes: bool = True) -> dict[str, bool]:
            return {"supported": yes}

        kinds = ("adaptive", "between_tools", "disabled", "enabled")
        capabilities = {
            **{name: supported() for name in ("batch", "citations", "code_execution", "image_input", "pdf_input")},
            "structured_outputs": supported(),
            "effort": {"supported": True, **{effort: supported() for effort in EFFORTS}},
            "thinking": {
                "supported": True,
                "types": {kind: supported(yes=kind in self.thinking_types) for kind in kinds},
            },
            "context_management": {"supported": False},
            "server_tools": {
                "supported": False,
                "code_execution": supported(yes=False),
                "web_search": supported(yes=False),
            },
        }
        return {
            "type": "model",
            "id": self.id,
            "display_name": self.name,
            "line": self.line,
            "lifecycle": "active",
            "created_at": _RELEASED,
            "max_input_tokens": self.context_tokens,
            "max_tokens": self.output_tokens,
            "capabilities": capabilities,
        }


MODELS = {
    rules.id: rules
    for rules in (
        ModelRules(
            "claude-opus-5-5",
            "Claude Opus 5.5",
            "opus",
            rates=Rates(4.0, 20.0, 0.20),
            thinking_types=frozenset({"adaptive"}),
        ),
        ModelRules("claude-sonnet-5-5", "Claude Sonnet 5.5", "sonnet", rates=Rates(2.0, 10.0, 0.10), effort="high"),
        ModelRules(
            "claude-haiku-5-5",
            "Claude Haiku 5.5",
            "haiku",
            rates=Rates(0.10, 0.50, 0.01, band_tokens=100_000, band_factor=5.0),
        ),
    )
}
_OTHER = ModelRules("", "", "", context_tokens=200_000)


def model_rules(model: str, offered: tuple[str, ...] | None) -> ModelRules:
    """The rules of a model. Raises `RequestError` if it does not exist, or is not among those `offered`."""
    if model not in (MODELS if offered is None else offered):
        raise RequestError(f"model: {model}", 404)
    return MODELS.get(model) or replace(_OTHER, id=model, name=model, line=model)


def check_parameters(data: dict[str, Any], rules: ModelRules) -> None:
    """What the newest models refuse. Raises `RequestError`."""
    if data["messages"][-1]["role"] == "assistant":
        raise RequestError("messages: This model does not support assistant message prefill.")
    choice = data.get("tool_choice")
    if choice is not None and choice.get("type") not in {"auto", "none"}:
        raise RequestError("tool_choice: This model does not support forcing the use of a tool.")
    for name in ("temperature", "top_p", "top_k"):
        if data.get(name) is not None:
            raise RequestError(f"{name}: This model does not support sampling parameters.")
    most, asked = rules.output_tokens, data.get("max_tokens") or 0
    if asked < 0:
        raise RequestError("max_tokens: must be greater than or equal to 0")
    if asked > most:
        text = f"max_tokens: {asked} > {most}, which is the maximum allowed number of output tokens for {rules.id}"
        raise RequestError(text)
    thinking = (data.get("thinking") or {}).get("type", "adaptive")
    if thinking not in rules.thinking_types:
        raise RequestError(f"thinking.type: {rules.id} does not support {thinking!r}")


def dollars(rules: ModelRules, usage: dict[str, Any]) -> float:
    """What the service charges for an answer with this usage."""
    rates, cached = rules.rates, usage["cache_creation"]
    prompt = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    factor = rates.band_factor if rates.band_tokens is not None and prompt > rates.band_tokens else 1.0
    cost: float = (
        usage["input_tokens"] * rates.input
        + usage["cache_read_input_tokens"] * rates.read
        + cached["ephemeral_5m_input_tokens"] * rates.input * rates.written
        + cached["ephemeral_1h_input_tokens"] * rates.input * rates.written_for_an_hour
        + usage["output_tokens"] * rates.output
    )
    return cost * factor / 1_000_000
