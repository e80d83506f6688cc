"""Access to a model service, and the capabilities that it lacks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from agents.models.answer import CallFault
from fleet.core.base.usage import Capability

ServiceKind = Literal["api", "bedrock", "vertex"]
_LACKING: Mapping[ServiceKind, frozenset[Capability]] = {
    "api": frozenset(),
    "bedrock": frozenset({"models", "count_tokens", "batches"}),
    "vertex": frozenset({"models", "batches"}),
}
"""Capabilities that the SDK's client of a service does not support."""
_NEEDS: Mapping[ServiceKind, tuple[str, ...]] = {
    "api": (),
    "bedrock": ("boto3", "botocore"),
    "vertex": ("google.auth", "requests"),
}
_SHORTEST_HEADER = 8  # characters of the shortest header value that is treated as a secret


@dataclass(frozen=True, slots=True)
class Access:
    """The address, credentials and capabilities of one service."""

    base_url: str
    """The base URL; empty if the SDK derives it from the region of a cloud."""
    api_key: str = field(repr=False)
    without: frozenset[Capability] = frozenset()
    """Capabilities that the service lacks for all models."""
    model_without: Mapping[str, frozenset[Capability]] = field(default_factory=dict)
    """Capabilities that individual models lack."""
    kind: ServiceKind = "api"
    bearer: bool = True
    """Whether the key is sent as a bearer token, instead of in the header `x-api-key`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers sent with every request."""
    region: str = ""
    project: str = ""

    def lacking(self, model: str) -> frozenset[Capability]:
        return self.without | self.model_without.get(model, frozenset()) | _LACKING[self.kind]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values to redact."""
        return tuple(self._secrets())

    def _secrets(self) -> Iterator[str]:
        if self.api_key:
            yield self.api_key
        yield from (value for value in self.headers.values() if len(value) >= _SHORTEST_HEADER)

    @property
    def authorization(self) -> dict[str, str]:
        """Return the header with the key, for a service with the Messages API."""
        return {"authorization": f"Bearer {self.api_key}"} if self.bearer else {"x-api-key": self.api_key}


def missing_extra(kind: ServiceKind) -> str:
    """Return the packages to install for a service, or an empty string."""
    if all(map(_is_installed, _NEEDS[kind])):
        return ""
    return f"the service {kind!r} requires optional packages: pip install 'worktree-fleet[{kind}]'"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing, too
        return False


# ---- platform --------------------------------------------------------------------------------------------------------
# The differences between a cloud service and the Messages API: client, streams and errors.


Decoder = Callable[[bytes], Iterable[bytes]]
"""Converts bytes of a stream to server-sent events. Raises one of `Platform.errors`."""


def as_it_is(chunk: bytes) -> Iterable[bytes]:
    return (chunk,)


def same_document(document: object, headers: Mapping[str, str]) -> object:
    del headers
    return document


def no_fault(error: Exception) -> CallFault | None:
    del error
    return None


@dataclass(frozen=True, slots=True)
class Platform:
    """A kind of service."""

    sdk: Any
    """The SDK's client."""
    decoder: Callable[[], Decoder] = lambda: as_it_is
    """Creates the decoder of a stream."""
    error_document: Callable[[object, Mapping[str, str]], object] = same_document
    """Converts the body and headers of an error to a document of the Messages API."""
    errors: tuple[type[Exception], ...] = ()
    """Errors raised by other libraries than the SDK, such as those that find credentials."""
    fault_of: Callable[[Exception], CallFault | None] = no_fault
    """Converts one of these errors to a fault."""
