"""The format of git's objects: trees, commits, persons, and the ids of all of them. Pure."""

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.core.base.ids import Sha
from worktrees.git.commit_message import Person

FILE, EXECUTABLE, LINK, GITLINK, FOLDER = "100644", "100755", "120000", "160000", "40000"
"""The modes of the entries of a tree. A gitlink names the commit of a submodule."""
ABSENT = "000000"
"""The mode of a path that does not exist on one side of a diff."""
ATTRIBUTES = ".gitattributes"
TREE = FOLDER.encode()
ID = r"(?:[0-9a-f]{40}|[0-9a-f]{64})"
"""The pattern of an id, SHA-1 or SHA-256."""
REF = r"refs/[^\s:^~?*\[\\\x00-\x1f\x7f]+"
"""The pattern of a ref's name, without anything that git could take for more than a name."""
ENTRIES = {size: re.compile(rb"([0-7]+) ([^\0]+)\0(.{%d})" % size, re.DOTALL) for size in (20, 32)}
"""An entry of a tree, by the bytes of an id."""
SHA1_DIGITS, SHA256_DIGITS = 40, 64  # of an id
DEEPEST = 200  # folders that are worked on in process; deeper ones are git's
SIGNATURE = re.compile(rb"(.*?) ?<.*> (\d{1,11}) [+-]\d{4}", re.DOTALL)
ODD_ENDS = "".join(map(chr, range(33))) + ".,:;<>\"\\'"  # what git strips from a person's name

Node = tuple[bytes, bytes]
"""The mode of an entry and the id it names, as a tree stores them."""
Tree = Mapping[bytes, Node]
EMPTY: Tree = {}


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as it is stored."""

    tree: Sha
    parents: tuple[Sha, ...]
    author: bytes
    committer: bytes
    message: bytes


def new_digest(digits: int) -> "hashlib._Hash":
    """The hash that makes ids of this length."""
    return hashlib.sha1(usedforsecurity=False) if digits == SHA1_DIGITS else hashlib.sha256()


def object_id(kind: str, content: bytes, *, digits: int) -> Sha:
    """The id of an object, in a repository whose ids have this length."""
    digest = new_digest(digits)
    digest.update(b"%b %d\0" % (kind.encode(), len(content)))
    digest.update(content)
    return digest.hexdigest()


# ---- trees -----------------------------------------------------------------------------------------------------------


def parse_tree(content: bytes, id_size: int = 20) -> dict[bytes, Node]:
    """The entries of a tree by name. Raises `ValueError` where the content is not that of a tree."""
    entries = ENTRIES[id_size].findall(content)
    if sum([len(mode) + len(name) for mode, name, _ in entries]) + (id_size + 2) * len(entries) != len(content):
        raise ValueError("not a tree")  # bytes between the entries
    return {name: (mode, id_) for mode, name, id_ in entries}


def format_tree(tree: Tree) -> bytes:
    """A tree as git stores it: folders sort as if their name ended with a slash."""
    entries = [(name + b"/" if mode == TREE else name, mode, name, id_) for name, (mode, id_) in tree.items()]
    entries.sort()
    return b"".join([b"%b %b\0%b" % (mode, name, id_) for _, mode, name, id_ in entries])


def folder_node(id_: Sha) -> Node:
    """The entry of a folder, by the id of its tree."""
    return TREE, bytes.fromhex(id_)


def is_folder(node: Node | None) -> bool:
    return node is not None and node[0] == TREE


# ---- commits ---------------------------------------------------------------------------------------------------------


def parse_commit(content: bytes) -> Commit:
    """A commit as it is stored. What it does not say is empty."""
    head, _, message = content.partition(b"\n\n")
    values: dict[bytes, list[bytes]] = {}
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        values.setdefault(key, []).append(value)
    tree, author, committer = (values.get(key, [b""])[0] for key in (b"tree", b"author", b"committer"))
    parents = tuple(parent.decode("ascii") for parent in values.get(b"parent", ()))
    return Commit(tree.decode("ascii"), parents, author, committer, message)


def signed(person: Person, date: str) -> bytes:
    """A person and a date, as commits name them."""
    name, email = (re.sub(r"[<>\n\0]", "", part.strip(ODD_ENDS)) for part in (person.name, person.email))
    return f"{name} <{email}> {date}".encode()


def signed_now(person: Person) -> bytes:
    now = int(time.time())
    minutes = time.localtime(now).tm_gmtoff // 60
    hours, rest = divmod(abs(minutes), 60)
    return signed(person, f"{now} {'-' if minutes < 0 else '+'}{hours:02}{rest:02}")


def parse_signature(signature: bytes) -> tuple[str, float]:
    """The name and the time in what a commit says of its author or committer; "" and 0 where git wrote it otherwise."""
    match = SIGNATURE.fullmatch(signature)
    return (match[1].decode("utf-8", "replace"), float(match[2])) if match else ("", 0.0)
