"""A generated history that has in it what real ones have: merges, renames, links, modes, and what no worker may do."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.worktrees.conftest import git

FILE, EXECUTABLE, LINK, GITLINK = "100644", "100755", "120000", "160000"
Entry = tuple[str, bytes]
"""A mode and a content; of a submodule, the id of its commit."""
PERSON = b"Ada <ada@example.org>"
LONG = b"".join(b"line %d of a text that is long enough to be recognised\n" % number for number in range(30))
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12\n" % (b"a" * 64)
KEY = b"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAxGenerated0For1Tests2Only3==\n-----END RSA PRIVATE KEY-----\n"


@dataclass(frozen=True)
class Made:
    """One commit: what it puts and what it removes."""

    message: bytes
    put: Mapping[bytes, Entry] = field(default_factory=dict)
    remove: tuple[bytes, ...] = ()
    by_hand: bool = False
    """Whether no worker may make it."""
    broken: bool = False
    """Whether the gate is red on it."""
    merges: bool = False
    """Whether it has a second parent."""


def text(content: bytes) -> Entry:
    return FILE, content


HISTORY = (
    Made(b"start", {b"README.md": text(b"hello\n"), b"src/a.txt": text(LONG), b"gone/x": text(b"x\n")}),
    Made(b"add lines", {b"src/a.txt": text(LONG + b"more\n")}),
    Made(b"only delete lines", {b"src/a.txt": text(LONG[:400])}),
    Made(b"a program", {b"bin/run": (EXECUTABLE, b"#!/bin/sh\ntrue\n")}),
    Made(b"no longer one", {b"bin/run": (FILE, b"#!/bin/sh\ntrue\n")}),
    Made(b"a link", {b"link": (LINK, b"src/a.txt"), b"README.md": text(b"hello again\n")}),
    Made(b"the link is a file", {b"link": text(b"plain\n")}),
    Made(b"rename a folder", {b"lib/a.txt": text(LONG[:400])}, (b"src/a.txt",)),
    Made(b"a new file where the folder was", {b"src/b.txt": text(b"b\n")}),
    Made(b"binary \xff\xfe message", {b"data.bin": (FILE, bytes(range(256)) * 40)}),
    Made(b"a folder becomes a file", {b"gone": text(b"a file now\n")}, (b"gone/x",)),
    Made(b"and a folder again", {b"gone/y/z": text(b"deep\n")}, (b"gone",)),
    Made(b"an empty commit"),
    Made(b"carriage returns", {b"crlf.txt": text(b"one\r\ntwo\r\n")}),
    Made(b"attributes", {b".gitattributes": text(b"*.txt text eol=crlf\n*.big filter=lfs diff=lfs merge=lfs -text\n")}),
    Made(b"returns that git would drop", {b"late.txt": text(b"one\r\ntwo\r\n")}, by_hand=True),
    Made(b"normal lines", {b"normal.txt": text(b"one\ntwo\n")}),
    Made(b"a pointer", {b"film.big": text(POINTER)}),
    Made(b"ignore logs", {b".gitignore": text(b"*.log\n")}),
    Made(b"an ignored file, by force", {b"kept.log": text(b"log\n")}, by_hand=True),
    Made(b"", {b"no-message": text(b"\n")}),
    Made(b"a submodule", {b"vendor/x": (GITLINK, b"1" * 40), b".gitmodules": text(b"")}, by_hand=True),
    Made(b"the submodule moves", {b"vendor/x": (GITLINK, b"2" * 40)}, by_hand=True),
    Made(b"no submodule", {}, (b"vendor/x", b".gitmodules")),
    Made(b"a name that is not UTF-8", {b"caf\xe9": text(b"coffee\n")}, by_hand=True),
    Made(b"odd names", {b"--force": text(b"1\n"), b":(top)x": text(b"2\n"), b"a b [c]*?": text(b"3\n")}),
    Made(b"a line break in a name", {b"n\nl": text(b"nl\n")}, by_hand=True),
    Made(b"names that collide", {b"Read.md": text(b"1\n"), b"read.md": text(b"2\n")}, by_hand=True),
    Made(b"a key", {b"tests/key.pem": text(KEY)}, by_hand=True),
    Made(b"a link that leads out", {b"out": (LINK, b"/etc/hosts")}, by_hand=True),
    Made(b"the gate breaks", {b"broken": text(b"yes\n")}, broken=True),
    Made(b"and something else is done meanwhile", {b"else.md": text(b"else\n")}, broken=True),
    Made(b"the gate is mended", {}, (b"broken",)),
    Made(b"configuration and tests", {b"Makefile": text(b"test:\n\ttrue\n"), b"tests/test_a.py": text(b"assert 1\n")}),
    Made(b"a merge", {b"merged/one": text(b"1\n"), b"merged/two": text(b"2\n")}, merges=True),
    Made(b"the last one", {b"README.md": text(b"the end\n")}),
)
BROKEN = tuple(number for number, made in enumerate(HISTORY) if made.broken)
"""The commits on which the gate is red."""
GATE = "test ! -e broken"


def make_history(at: Path, history: tuple[Made, ...] = HISTORY) -> Path:
    """A repository with this history on `main`, and a clean checkout."""
    at.mkdir(parents=True)
    git(at, "init", "--quiet")
    stream = b"".join(_commit(number, made) for number, made in enumerate(history, start=1))
    subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=at, input=stream, check=True)
    git(at, "reset", "--quiet", "--hard", "main")
    return at


def _commit(number: int, made: Made) -> bytes:
    when = b"%b %d +0000\n" % (PERSON, 1_700_000_000 + number)
    lines = [b"commit refs/heads/main\nmark :%d\nauthor %bcommitter %b" % (number, when, when), _data(made.message)]
    if number > 1:
        lines.append(b"from :%d\n" % (number - 1))
    if made.merges:
        lines.append(b"merge :%d\n" % (number - 3))
    lines += [b"D %b\n" % _quoted(path) for path in made.remove]
    for path, (mode, content) in made.put.items():
        if mode == GITLINK:
            lines.append(b"M 160000 %b %b\n" % (content, _quoted(path)))
        else:
            lines.append(b"M %b inline %b\n%b" % (mode.encode(), _quoted(path), _data(content)))
    return b"".join(lines) + b"\n"


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def _quoted(path: bytes) -> bytes:
    plain = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"%b"' % plain
