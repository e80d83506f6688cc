"""Where a service differs from one that speaks the Messages API itself: its client, its streams, its errors."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.models.answer import CallFault

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
