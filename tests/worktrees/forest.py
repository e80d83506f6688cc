"""Random trees for the property tests: files as a dictionary, edits of them, and the same written as git objects."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from fleet.core.base.ids import Sha
from tests.worktrees.conftest import git
from worktrees.git.object_format import EXECUTABLE, FILE, GITLINK, LINK, Node, Person
from worktrees.git.objects import Objects

ADA, BOB = Person("Ada", "ada@example.org"), Person("Bob", "bob@example.org")
Files = dict[bytes, tuple[str, bytes]]
"""Paths with mode and content."""
Edit = Callable[[Files], None]

LINES = [f"line {number} of a text that is long enough to be recognised".encode() for number in range(12)]
ODD_NAMES = (
    b"a",
    b"b",
    b"a.b",
    b"a-",
    b"a0",
    b"A",
    b" ",
    b"--x",
    b":(top)",
    b"\xff\xfe",
    b"n\nl",
    "é".encode(),
    b"q\"'",
)


def texts() -> st.SearchStrategy[bytes]:
    """Few, and alike, so that git finds renames among them."""
    changed = st.integers(0, len(LINES) - 1).map(lambda at: [*LINES[:at], b"changed", *LINES[at + 1 :]])
    return (changed | st.just(LINES)).map(lambda lines: b"\n".join(lines) + b"\n") | st.sampled_from([b"", b"x\n"])


def paths(names: tuple[bytes, ...], depth: int = 3) -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=depth).map(b"/".join)


def files(names: tuple[bytes, ...], *, most: int = 12, submodules: bool = False) -> st.SearchStrategy[Files]:
    contents = st.tuples(st.sampled_from([FILE, FILE, EXECUTABLE]), texts()) | st.tuples(
        st.just(LINK), st.just(b"goal")
    )
    if submodules:
        contents |= st.tuples(st.just(GITLINK), st.sampled_from([b"1", b"2"]))
    listed = st.lists(st.tuples(paths(names), contents), max_size=most)
    return listed.map(_put_all)


def _put_all(listed: list[tuple[bytes, tuple[str, bytes]]]) -> Files:
    made: Files = {}
    for path, content in listed:
        put(made, path, content)
    return made


def put(made: Files, path: bytes, content: tuple[str, bytes]) -> None:
    """As a file system has it: what is in the way of a file goes."""
    parts = path.split(b"/")
    for end in range(1, len(parts)):
        made.pop(b"/".join(parts[:end]), None)
    remove(made, path)
    made[path] = content


def remove(made: Files, path: bytes) -> None:
    for other in [other for other in made if other == path or other.startswith(path + b"/")]:
        del made[other]


def move(made: Files, old: bytes, new: bytes) -> None:
    """A file, or a folder with all that is in it."""
    inside = {path: content for path, content in made.items() if path == old or path.startswith(old + b"/")}
    remove(made, old)
    for path, content in inside.items():
        put(made, new + path[len(old) :], content)


def edits(
    names: tuple[bytes, ...], most: int = 4, *, submodules: bool = False
) -> st.SearchStrategy[list[tuple[str, bytes, bytes, str, bytes]]]:
    kinds = st.sampled_from(["put", "put", "remove", "move", "move"])
    modes = st.sampled_from([FILE, FILE, EXECUTABLE, LINK, *([GITLINK] if submodules else [])])
    each = st.tuples(kinds, paths(names), paths(names), modes, texts())
    return st.lists(each, max_size=most)


def edited(made: Files, steps: list[tuple[str, bytes, bytes, str, bytes]]) -> Files:
    new = dict(made)
    for kind, path, other, mode, content in steps:
        match kind:
            case "put" if mode in {LINK, GITLINK}:
                put(new, path, (mode, content[:1] or b"1"))
            case "put":
                put(new, path, (mode, content))
            case "remove":
                remove(new, path)
            case _:
                if not (other + b"/").startswith(path + b"/") and not (path + b"/").startswith(other + b"/"):
                    move(new, path, other)
    return new


@contextmanager
def room() -> Iterator[Path]:
    """A folder for one example; in memory where there is that."""
    memory = Path("/dev/shm")  # noqa: S108 - the one other file system that every Linux has
    with TemporaryDirectory(prefix="fleet-test-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def new_repository(at: Path, *options: str) -> Path:
    at.mkdir(parents=True)
    git(at, "init", "--quiet", "--bare", *options, ".")
    return at


def plant(objects: Objects, made: Mapping[bytes, tuple[str, bytes]]) -> Sha:
    """These files as a tree."""
    top: dict[bytes, Node] = {}
    below: dict[bytes, Files] = {}
    for path, (mode, content) in made.items():
        name, _, rest = path.partition(b"/")
        if rest:
            below.setdefault(name, {})[rest] = (mode, content)
        else:
            blob = bytes.fromhex(objects.put("blob", content))
            top[name] = (mode.encode(), (content * len(blob))[: len(blob)] if mode == GITLINK else blob)
    for name, inside in below.items():
        top[name] = (b"40000", bytes.fromhex(plant(objects, inside)))
    return objects.put_tree(top)


def commit(objects: Objects, tree: Sha, *parents: str, message: str = "x") -> Sha:
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    who = "Ada <ada@example.org> 1700000000 +0000"
    return objects.put("commit", "\n".join((*lines, f"author {who}", f"committer {who}", "", f"{message}\n")).encode())


def children() -> set[int]:
    """The processes that we started and that still are."""
    listed = Path("/proc/self/task").glob("*/children")
    return {int(pid) for path in listed for pid in path.read_text().split()}


def ask(at: Path, *args: str, data: bytes = b"", env: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Git's exit code and answer, both raw."""
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(["git", *args], cwd=at, env=environment, input=data, capture_output=True, check=False)
    return done.returncode, done.stdout
