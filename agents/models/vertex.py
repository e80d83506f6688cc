"""Claude on Google Vertex AI: the SDK's client. Credentials are found as google-auth finds them.

The only user of google-auth; imported where the configuration names Vertex.
"""

from typing import Any

from anthropic import NOT_GIVEN, AsyncAnthropicVertex
from google.auth.exceptions import GoogleAuthError, TransportError

from agents.models.access import Access, Platform
from agents.models.answer import CallFault
from agents.models.faults import one_line

_NAMED = ("project_id", "API token")
"""What the SDK says is missing."""


def vertex(access: Access, **options: Any) -> Platform:
    """Raises `ValueError` if no region is found."""
    client = AsyncAnthropicVertex(
        region=access.region or NOT_GIVEN,
        project_id=access.project or NOT_GIVEN,
        base_url=access.base_url or None,
        default_headers=access.headers,
        **options,
    )
    return Platform(client, errors=(GoogleAuthError, RuntimeError, ValueError), fault_of=fault_of)


def fault_of(error: Exception) -> CallFault | None:
    if isinstance(error, TransportError):
        return CallFault("outage", one_line(f"Google's credentials can't be fetched: {error}"))
    if not isinstance(error, GoogleAuthError) and not any(word in str(error) for word in _NAMED):
        is_path = isinstance(error, ValueError)  # a model's name that makes none
        return CallFault("configuration", one_line(f"the request can't be sent: {error}")) if is_path else None
    return CallFault("refused", one_line(f"no Google credentials: {type(error).__name__}: {error}"))
