"""Frames: how messages travel over a stream of bytes. Knows no I/O; what it is fed may be hostile.

A frame is two lengths (four bytes each, big-endian), a header of JSON, and a body of binary parts that the header
describes. A length beyond its limit is an error before a byte behind it is kept.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from fleet.core.base.output import parse_json

LENGTHS = 8
LONGEST_HEADER = 64 * 1024
LONGEST_BODY = 96 * 1024 * 1024
MOST_PARTS = 16


class FrameError(ValueError):
    """The other side does not keep to the protocol. The message says where."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message as it travels."""

    header: dict[str, object]
    parts: tuple[bytes, ...] = ()


def encode(frame: Frame) -> bytes:
    """The bytes of a frame. Raises `FrameError` where it breaks a limit: the other side would not take it."""
    sizes = [len(part) for part in frame.parts]
    header = json.dumps({**frame.header, "parts": sizes} if sizes else frame.header, separators=(",", ":")).encode()
    if len(header) > LONGEST_HEADER or sum(sizes) > LONGEST_BODY or len(sizes) > MOST_PARTS:
        raise FrameError(f"a message of {len(header)} and {sum(sizes)} bytes is too long to be sent")
    return b"".join((len(header).to_bytes(4), sum(sizes).to_bytes(4), header, *frame.parts))


@dataclass(slots=True)
class Decoder:
    """Makes frames of the bytes that arrive, however they are cut."""

    longest_body: int = LONGEST_BODY
    _bytes: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete. Raises `FrameError`."""
        self._bytes += data
        while len(self._bytes) >= LENGTHS:
            header_size, body_size = int.from_bytes(self._bytes[:4]), int.from_bytes(self._bytes[4:LENGTHS])
            if not 0 < header_size <= LONGEST_HEADER:
                raise FrameError(f"a header of {header_size} bytes; at most {LONGEST_HEADER} are taken")
            if body_size > self.longest_body:
                raise FrameError(f"a body of {body_size} bytes; at most {self.longest_body} are taken")
            end = LENGTHS + header_size + body_size
            if len(self._bytes) < end:
                return
            header = _header(bytes(self._bytes[LENGTHS : LENGTHS + header_size]))
            body = bytes(self._bytes[LENGTHS + header_size : end])
            del self._bytes[:end]
            yield Frame(header, tuple(_parts(header, body)))

    @property
    def is_between_frames(self) -> bool:
        return not self._bytes


def _header(data: bytes) -> dict[str, object]:
    try:
        header = parse_json(data)
    except ValueError as error:
        raise FrameError("a header is not JSON") from error
    if not isinstance(header, dict):
        raise FrameError("a header is not a JSON object")
    return header


def _parts(header: dict[str, object], body: bytes) -> Iterator[bytes]:
    sizes = header.pop("parts", [])
    if not isinstance(sizes, list) or len(sizes) > MOST_PARTS or not all(map(_is_size, sizes)):
        raise FrameError("a header describes its parts wrongly")
    if sum(sizes) != len(body):
        raise FrameError(f"parts of {sum(sizes)} bytes in a body of {len(body)}")
    at = 0
    for size in sizes:
        yield body[at : at + size]
        at += size


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
