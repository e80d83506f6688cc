"""A vector is a tuple that shares: the same entries, whatever was done to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.base.vector import CHUNK, Vector

entries = st.lists(st.integers(), max_size=3 * CHUNK)


@given(entries, entries)
def test_it_holds_what_was_appended(first: list[int], then: list[int]) -> None:
    vector = Vector(first)
    for entry in then:
        vector = vector.append(entry)
    assert list(vector) == first + then
    assert list(reversed(vector)) == [*reversed(first + then)]
    assert len(vector) == len(first) + len(then)
    assert vector[:] == tuple(first + then)


@given(entries, entries)
def test_extending_it_is_appending_each_and_shares_what_was_there(first: list[int], then: list[int]) -> None:
    before: Vector[tuple[int, ...]] = Vector([(number,) for number in first])
    after = before.extend((number,) for number in then)
    assert list(after) == [(number,) for number in first + then]
    assert all(new is old for new, old in zip(after.chunks, before.chunks[: len(first) // CHUNK], strict=False))
    assert list(after.changed_since(before)) == list(range(len(first), len(first) + len(then)))
    assert after.append((-1,)) == [*after, (-1,)]


@given(st.lists(st.integers(), min_size=1, max_size=3 * CHUNK), st.data())
def test_a_changed_one_leaves_the_other_alone_and_says_what_changed(first: list[int], data: st.DataObject) -> None:
    before: Vector[tuple[int, ...]] = Vector([(number,) for number in first])
    index = data.draw(st.integers(0, len(first) - 1))
    after = before.put(index, (-1, -1)).append((-2, -2))
    assert list(before) == [(number,) for number in first]
    assert (after[index], after[-1], after[index - len(after)]) == ((-1, -1), (-2, -2), (-1, -1))
    assert list(after.changed_since(before)) == [index, len(first)]
    assert list(before.changed_since(before)) == []


def test_it_equals_any_sequence_with_the_same_entries() -> None:
    assert Vector([1, 2]) == [1, 2]
    assert Vector([1, 2]) == Vector([1, 2])
    assert Vector([1, 2]) != [1, 3]
    assert Vector([1]) != [1, 1]
    assert Vector() != ""
    assert hash(Vector([1, 2])) == hash(Vector((1, 2)))


def test_there_is_nothing_before_or_behind_it() -> None:
    for index in (-2, 1):
        with pytest.raises(IndexError):
            Vector([1])[index]
