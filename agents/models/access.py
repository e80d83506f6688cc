"""How a models' service is reached, and what it lacks."""

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
"""What the SDK's client of a service has no call for."""
_NEEDS: Mapping[ServiceKind, tuple[str, ...]] = {
    "api": (),
    "bedrock": ("boto3", "botocore"),
    "vertex": ("google.auth", "requests"),
}
_SHORTEST_HEADER = 8  # characters of a header's value that may be a secret


@dataclass(frozen=True, slots=True)
class Access:
    """One service."""

    base_url: str
    """Empty: as the SDK derives it from the region of a cloud."""
    api_key: str = field(repr=False)
    without: frozenset[Capability] = frozenset()
    """What the service lacks, for every model."""
    model_without: Mapping[str, frozenset[Capability]] = field(default_factory=dict)
    """What single models lack."""
    kind: ServiceKind = "api"
    bearer: bool = True
    """Whether the key is sent as a bearer token; otherwise in the header `x-api-key`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request."""
    region: str = ""
    project: str = ""

    def lacking(self, model: str) -> frozenset[Capability]:
        return self.without | self.model_without.get(model, frozenset()) | _LACKING[self.kind]

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no one may see."""
        return tuple(self._secrets())

    def _secrets(self) -> Iterator[str]:
        if self.api_key:
            yield self.api_key
        yield from (value for value in self.headers.values() if len(value) >= _SHORTEST_HEADER)

    @property
    def authorization(self) -> dict[str, str]:
        """The header with the key, for a service that speaks the Messages API itself."""
        return {"authorization": f"Bearer {self.api_key}"} if self.bearer else {"x-api-key": self.api_key}


def missing_extra(kind: ServiceKind) -> str:
    """What to install for a service; empty if it is there."""
    if all(map(_is_installed, _NEEDS[kind])):
        return ""
    return f"the service {kind!r} needs more packages: pip install 'worktree-fleet[{kind}]'"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor the package that it is in
        return False


# ---- platform --------------------------------------------------------------------------------------------------------
# Where a service differs from one that speaks the Messages API itself: its client, its streams, its errors.


Decoder = Callable[[bytes], Iterable[bytes]]
"""From the next bytes of a stream to those of server-sent events. Raises one of `Platform.errors`."""


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
    """One kind of service."""

    sdk: Any
    """The SDK's client."""
    decoder: Callable[[], Decoder] = lambda: as_it_is
    """Makes the decoder of one stream."""
    error_document: Callable[[object, Mapping[str, str]], object] = same_document
    """The body of an error, and its headers, as a document of the Messages API."""
    errors: tuple[type[Exception], ...] = ()
    """What is raised besides the SDK's own errors: by the libraries that find credentials, for example."""
    fault_of: Callable[[Exception], CallFault | None] = no_fault
    """What one of these means."""
