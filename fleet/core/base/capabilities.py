"""What a models' service can do beyond the basics of the Messages API. One that lacks something is used without it."""

from collections.abc import Mapping
from typing import Literal, get_args

Capability = Literal[
    "thinking",
    "thinking_history",
    "effort",
    "strict_tools",
    "built_in_tools",
    "cache",
    "cache_hour",
    "keep_alive",
    "diagnostics",
    "streaming",
    "models",
    "count_tokens",
    "batches",
]
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)

USES: Mapping[Capability, str] = {
    "thinking": "summaries of thinking (`thinking`)",
    "thinking_history": "thinking of earlier answers, sent back",
    "effort": "how hard a model tries (`output_config.effort`)",
    "strict_tools": "tool schemas that are enforced (`strict`)",
    "built_in_tools": "the service's own types of tools (`bash_…`, `text_editor_…`)",
    "cache": "prompts in the cache (`cache_control`)",
    "cache_hour": "prompts in the cache for an hour (`ttl`)",
    "keep_alive": "requests that only keep a prompt in the cache (`max_tokens: 0`)",
    "diagnostics": "why a prompt missed the cache (`diagnostics`)",
    "streaming": "answers as a stream of events (`stream`)",
    "models": "limits of models (`GET /v1/models/MODEL`)",
    "count_tokens": "the length of a prompt (`POST /v1/messages/count_tokens`)",
    "batches": "requests that may wait, for half the price (`POST /v1/messages/batches`)",
}
"""What each is for, and what asks for it."""
