"""Packs as hostile input: what our own reader takes and refuses, before git sees them."""

import subprocess
import zlib
from contextlib import suppress
from hashlib import sha1
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worktrees.conftest import git, make_repository
from worktrees.git.object_format import PackError, PackLimits, check_pack

ROOM = PackLimits(packed_bytes=100_000, objects=100, bytes=1_000_000)


def pack_of(*entries: bytes, count: int | None = None) -> bytes:
    body = b"PACK" + (2).to_bytes(4) + (len(entries) if count is None else count).to_bytes(4) + b"".join(entries)
    return body + sha1(body, usedforsecurity=False).digest()


def entry(content: bytes, *, kind: int = 3, size: int | None = None, before: bytes = b"") -> bytes:
    left = len(content) if size is None else size
    first, left = (kind << 4) | (left & 15), left >> 4
    header = bytearray()
    while left:
        header.append(first | 0x80)
        first, left = left & 0x7F, left >> 7
    header.append(first)
    return bytes(header) + before + zlib.compress(content)


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes((*found, value))


def real_pack(at: Path, *revisions: str, thin: bool) -> bytes:
    argv = ["git", "pack-objects", "--revs", "--stdout", "--quiet", *(["--thin"] if thin else [])]
    lines = "".join(f"{each}\n" for each in revisions)
    return subprocess.run(argv, cwd=at, input=lines.encode(), capture_output=True, check=True).stdout


def test_packs_of_git_are_taken(tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(300))
    repository = make_repository(tmp_path / "r", {"long.txt": text, "other/short.txt": "hello\n"})
    (repository / "long.txt").write_text(f"{text}and one more\n")
    git(repository, "commit", "--quiet", "-am", "more")
    whole = real_pack(repository, "HEAD", thin=False)
    thin = real_pack(repository, "HEAD", "^HEAD~", thin=True)
    assert check_pack(whole, PackLimits()) == 8
    assert check_pack(thin, PackLimits()) == 3
    assert len(thin) < len(whole)


@pytest.mark.parametrize(
    ("pack", "why"),
    [
        (b"", "not a version 2 pack"),
        (b"PACK" + bytes(40), "not a version 2 pack"),
        (pack_of(entry(b"x"))[:-1] + b"?", "checksum"),
        (pack_of(count=101), "101 objects"),
        (pack_of(entry(b"x"), count=2), "ends in the middle"),
        (pack_of(entry(b"x"), b"more", count=1), "after its last object"),
        (pack_of(entry(b"x" * 10, size=9)), "differs in size"),
        (pack_of(entry(b"x" * 10, size=11)), "differs in size"),
        (pack_of(entry(bytes(2_000_000))), "too large together"),
        (pack_of(*[entry(bytes(300_000))] * 4), "too large together"),
        (pack_of(entry(bytes(2_000_000), size=15)), "differs in size"),
        (pack_of(entry(b"x", kind=5)), "kind 5"),
        (pack_of(entry(b"x", kind=0)), "kind 0"),
        (pack_of(entry(varint(5) + varint(2**40) + b"\x90\x05", kind=7, before=bytes(20))), "too large together"),
        (pack_of(b"\xb0" + b"\xff" * 40), "a size in the pack is too long"),
        (pack_of(b"\x31" + b"no zlib"), "can't inflate"),
    ],
)
def test_a_pack_that_breaks_a_limit_or_its_own_word_is_refused(pack: bytes, why: str) -> None:
    with pytest.raises(PackError, match=why):
        check_pack(pack, ROOM)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_noise_with_a_right_checksum_is_refused_or_read(noise: bytes, count: int) -> None:
    with suppress(PackError):
        assert check_pack(pack_of(noise, count=count), ROOM) == count
