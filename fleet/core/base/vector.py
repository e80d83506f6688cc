"""A frozen sequence for long histories: a changed copy shares with the original all but two short tuples."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")
CHUNK = 64
"""Entries that a change copies, in addition to one reference per other chunk: 220 for 10,000 entries."""


class Vector(Sequence[T], Generic[T]):
    """Equal to any sequence with the same entries."""

    __slots__ = ("_count", "chunks")

    def __init__(self, entries: Iterable[T] = ()) -> None:
        all_ = tuple(entries)
        self.chunks = tuple(all_[at : at + CHUNK] for at in range(0, len(all_), CHUNK))
        self._count = len(all_)

    @classmethod
    def _of(cls, chunks: tuple[tuple[T, ...], ...], count: int) -> "Vector[T]":
        made: Vector[T] = cls.__new__(cls)
        made.chunks, made._count = chunks, count
        return made

    def at(self, index: int) -> T:
        """Return the entry at a valid index. Skips the bounds check, because this is called for every fact."""
        return self.chunks[index // CHUNK][index % CHUNK]

    def put(self, index: int, entry: T) -> "Vector[T]":
        """With another entry at this index, which must exist."""
        at = index // CHUNK
        chunks, chunk = list(self.chunks), list(self.chunks[at])
        chunk[index % CHUNK] = entry
        chunks[at] = tuple(chunk)
        return self._of(tuple(chunks), self._count)

    def append(self, entry: T) -> "Vector[T]":
        if self._count % CHUNK == 0:
            return self._of((*self.chunks, (entry,)), self._count + 1)
        return self._of((*self.chunks[:-1], (*self.chunks[-1], entry)), self._count + 1)

    def extend(self, entries: Iterable[T]) -> "Vector[T]":
        """With these at the end."""
        full = self._count // CHUNK
        new = Vector((*(entry for chunk in self.chunks[full:] for entry in chunk), *entries))
        return self._of((*self.chunks[:full], *new.chunks), full * CHUNK + len(new))

    def changed_since(self, before: "Vector[T]") -> Iterator[int]:
        """The indices of entries that are not the very ones of an earlier version, in order."""
        for at, chunk in enumerate(self.chunks):
            old = before.chunks[at] if at < len(before.chunks) else ()
            if chunk is not old:
                for within, entry in enumerate(chunk):
                    if within >= len(old) or entry is not old[within]:
                        yield at * CHUNK + within

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return tuple(self)[index]
        at = index + self._count if index < 0 else index
        if not 0 <= at < self._count:
            raise IndexError(index)
        return self.chunks[at // CHUNK][at % CHUNK]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for chunk in self.chunks:
            yield from chunk

    def __reversed__(self) -> Iterator[T]:
        for chunk in reversed(self.chunks):
            yield from reversed(chunk)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Vector({list(self)!r})"
