"""The format of a pack: written without deltas, and read as hostile input.

Every limit is checked before git sees a byte of it.

A pack of a kilobyte can hold a file of a gigabyte, and a delta of fifty bytes can ask for one. So each entry's size is
read from its header, each delta's from its own, and nothing is inflated beyond what a header announces.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from worktrees.git.object_format import new_digest

MAGIC, VERSION = b"PACK", 2
HEADER = 12
KINDS = {1: "commit", 2: "tree", 3: "blob", 6: "offset delta", 7: "delta"}
OFFSET_DELTA, DELTA = 6, 7
NUMBERS = {name: number for number, name in KINDS.items() if number < OFFSET_DELTA}
PART = 16 * 1024
LONGEST_VARINT = 10  # bytes: more than any size that we accept needs


class PackError(ValueError):
    """A pack that is not taken; the message says why."""


@dataclass(frozen=True, slots=True)
class PackLimits:
    """The most that a pack may hold."""

    packed_bytes: int = 64 * 1024 * 1024
    objects: int = 100_000
    bytes: int = 512 * 1024 * 1024
    """Of all objects together, as they are once deltas are applied."""


def format_pack(objects: Sequence[tuple[str, bytes]], *, digits: int = 40) -> bytes:
    """A pack of these objects, kinds and contents, each as it is."""
    head = MAGIC + VERSION.to_bytes(4) + len(objects).to_bytes(4)
    pack = head + b"".join(
        [_header_of(NUMBERS[kind], len(content)) + zlib.compress(content) for kind, content in objects]
    )
    return pack + _checksum(pack, digits)


def _header_of(kind: int, size: int) -> bytes:
    """How an entry begins."""
    header, size = bytearray([kind << 4 | size & 15]), size >> 4
    while size:
        header[-1] |= 0x80
        header.append(size & 0x7F)
        size >>= 7
    return bytes(header)


def _checksum(data: bytes, digits: int) -> bytes:
    digest = new_digest(digits)
    digest.update(data)
    return digest.digest()


def check_pack(pack: bytes, limits: PackLimits, *, digits: int = 40) -> int:
    """The number of objects in a pack. Raises `PackError` where it is damaged or breaks a limit."""
    trailer = digits // 2
    if len(pack) > limits.packed_bytes:
        raise PackError(f"the pack has {len(pack)} bytes; at most {limits.packed_bytes} are taken")
    if len(pack) < HEADER + trailer or pack[:4] != MAGIC or int.from_bytes(pack[4:8]) != VERSION:
        raise PackError("it is not a pack of version 2")
    if _checksum(pack[:-trailer], digits) != pack[-trailer:]:
        raise PackError("the pack is damaged: its checksum differs")
    count = int.from_bytes(pack[8:HEADER])
    if count > limits.objects:
        raise PackError(f"the pack has {count} objects; at most {limits.objects} are taken")
    body = memoryview(pack)[:-trailer]
    at, total = HEADER, 0
    for _ in range(count):
        at, size = _entry(body, at, trailer, limits.bytes - total)
        total += size
    if at != len(body):
        raise PackError("the pack has bytes behind its last object")
    return count


def _entry(body: memoryview, at: int, id_bytes: int, room: int) -> tuple[int, int]:
    """Where an entry ends, and how large its object is."""
    kind, size, at = _entry_header(body, at)
    if kind == OFFSET_DELTA:
        _, at = _varint(body, at)
    elif kind == DELTA:
        at += id_bytes
    if size > room:
        raise PackError("the objects of the pack are too large together")
    content, at = _inflate(body, at, size)
    if kind in {OFFSET_DELTA, DELTA}:
        size = max(size, _delta_size(content))
        if size > room:
            raise PackError("the objects of the pack are too large together")
    return at, size


def _inflate(body: memoryview, at: int, size: int) -> tuple[bytes, int]:
    """The data of an entry, and where it ends. Fed in small parts: what is left over of each part is copied."""
    inflater, content = zlib.decompressobj(), bytearray()
    while not inflater.eof:
        part = body[at : at + PART]
        if not part:
            raise PackError("the pack ends in the middle of an object")
        try:
            content += inflater.decompress(part, size + 1 - len(content))
        except zlib.error as error:
            raise PackError(f"an object of the pack can't be inflated: {error}") from None
        at += len(part) - len(inflater.unconsumed_tail) - len(inflater.unused_data)
        if len(content) > size:
            break
    if len(content) != size:
        raise PackError("an object of the pack has another size than its header says")
    return bytes(content), at


def _entry_header(body: memoryview, at: int) -> tuple[int, int, int]:
    """The kind of an entry, the size of its data, and where that begins."""
    byte, at = _byte(body, at)
    kind, size, shift = (byte >> 4) & 7, byte & 15, 4
    while byte & 0x80:
        byte, at = _byte(body, at)
        size |= (byte & 0x7F) << shift
        shift += 7
        if shift > 7 * LONGEST_VARINT:
            raise PackError("a size in the pack is too long")
    if kind not in KINDS:
        raise PackError(f"the pack has an entry of kind {kind}")
    return kind, size, at


def _delta_size(delta: bytes) -> int:
    """The larger of the sizes of what a delta is applied to and what it makes."""
    source, at = _varint(memoryview(delta), 0)
    target, _ = _varint(memoryview(delta), at)
    return max(source, target)


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = _byte(body, at)
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
        if shift > 7 * LONGEST_VARINT:
            raise PackError("a size in the pack is too long")


def _byte(body: memoryview, at: int) -> tuple[int, int]:
    if at >= len(body):
        raise PackError("the pack ends in the middle of an object")
    return body[at], at + 1
