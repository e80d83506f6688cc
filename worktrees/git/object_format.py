"""The format of git objects: trees, commits, persons and their ids. Pure."""

import hashlib
import re
import time
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.core.base.forges import FORGES
from fleet.core.base.ids import RunId, Sha, is_slug
from fleet.core.facts.facts import Member
from fleet.ports.worktrees import Signature

# ---- commit message --------------------------------------------------------------------------------------------------
# The messages of fleet's commits: written here, and parsed here after a crash.
#
# Titles and bodies come from models. They are cut to one line and stripped of control characters, so that they can't
# imitate trailers or close issues on a forge. Our trailers are the last paragraph, and only that paragraph is parsed.


LONGEST_SUBJECT = 100
LONGEST_BODY = 10_000
RUN, TASK, ATTEMPT, WORKER, ASSISTED = "Fleet-Run", "Fleet-Task", "Fleet-Attempt", "Fleet-Worker", "Assisted-by"
DIGITS = 9  # of an attempt's number
_PARAGRAPHS = re.compile(r"\n\s*\n")
_POSING = re.compile(r"(?im)^(?=(?:fleet-[a-z]+|assisted-by|signed-off-by|co-authored-by)\s*:)")


@dataclass(frozen=True, slots=True)
class Person:
    """The author or the committer of a commit."""

    name: str
    email: str

    def environment(self) -> dict[str, str]:
        """The variables that set this person as author and committer in git."""
        author = {"GIT_AUTHOR_NAME": self.name, "GIT_AUTHOR_EMAIL": self.email}
        return {**author, "GIT_COMMITTER_NAME": self.name, "GIT_COMMITTER_EMAIL": self.email}


def committer_of(name: str, email: str) -> Person:
    """Return the committer of all commits: the configured author, or fleet."""
    return Person(name or "fleet", email)


def author_of(signature: Signature, name: str, email: str) -> Person:
    """Return the configured author, or the worker with its model."""
    if name:
        return Person(name, email)
    worker = f"fleet {signature.worker}"
    name = one_line(f"{worker} ({signature.model})" if signature.model else worker)
    return Person(re.sub(r"[<>]", "", name), email)


def compose(signature: Signature) -> str:
    """Compose the full message."""
    text = f"{one_line(signature.title)}\n{_plain(signature.body)[:LONGEST_BODY]}"
    title, _, body = strip_closing_keywords(text).partition("\n")
    subject = title[:LONGEST_SUBJECT].rstrip() or f"Subtask {signature.subtask}"
    lines = [
        f"{RUN}: {signature.run}",
        f"{TASK}: {signature.subtask}",
        f"{ATTEMPT}: {signature.attempt}",
        f"{WORKER}: {one_line(signature.worker)}",
        *([f"{ASSISTED}: {one_line(signature.model)}"] if signature.model else []),
    ]
    body = _POSING.sub("| ", body).strip()
    return "\n\n".join(part for part in (subject, body, "\n".join(lines)) if part) + "\n"


def member_of(commit: Sha, message: str, run: RunId) -> Member | None:
    """Return the subtask and attempt of a commit, if it belongs to this run."""
    values = parse_trailers(message)
    subtask, attempt = values.get(TASK, ""), attempt_number(values)
    if values.get(RUN) != run or not is_slug(subtask) or attempt is None:
        return None
    return Member(subtask=subtask, attempt=attempt, commit=commit)


def parse_trailers(message: str) -> dict[str, str]:
    """Parse the last paragraph of a message by name. The last value of a name counts, because ours come last."""
    last = _PARAGRAPHS.split(message.strip())[-1]
    return dict(line.rstrip("\r").split(": ", 1) for line in last.split("\n") if ": " in line)


def attempt_number(values: Mapping[str, str]) -> int | None:
    """Return the attempt number from trailers, or None if they are not ours."""
    number = values.get(ATTEMPT, "")
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= DIGITS else None


def one_line(untrusted: str) -> str:
    return " ".join(_plain(untrusted).split())


def _plain(untrusted: str) -> str:
    """Remove control characters and bidirectional marks."""
    plain = (char for char in untrusted.replace("\r\n", "\n") if char in "\n\t" or unicodedata.category(char)[0] != "C")
    return "".join(plain)


# ---- closing words ---------------------------------------------------------------------------------------------------
# Keywords in a commit message that close an issue on a forge once the commit is on the default branch.
#
# The syntax differs slightly between forges: "fixes #7", "Closes: acme/shop#7", "resolve issue #7", "implements
# https://…/issues/7". Gitea and Bitbucket can also reopen an issue.


_STEMS = dict.fromkeys((*(word for each in FORGES for word in each.closing), r"reopen(?:s|ed|ing)?"))
_WORD = rf"\b(?:{'|'.join(_STEMS)})"
_BETWEEN = r"[\s:,*_~(\[`'\"-]{1,20}(?:(?:issues?|bugs?|tickets?)\s{1,20})?"
_REFERENCE = r"(?:[\w./-]{0,200}#\d+|GH-\d+|https?://[^\s<>()\[\]]{1,200}/\d[^\s<>()\[\]]{0,200})"
_CLOSES = re.compile(rf"({_WORD}{_BETWEEN})({_REFERENCE})", re.IGNORECASE)


def strip_closing_keywords(text: str) -> str:
    """Keep references in the text, but not directly after a closing keyword: "fixes (see #7)"."""
    return _CLOSES.sub(r"\1(see \2)", text)


# ---- object format ---------------------------------------------------------------------------------------------------


FILE, EXECUTABLE, LINK, GITLINK, FOLDER = "100644", "100755", "120000", "160000", "40000"
"""The modes of tree entries. A gitlink is the commit of a submodule."""
ABSENT = "000000"
"""The mode of a path that is missing on one side of a diff."""
ATTRIBUTES = ".gitattributes"
TREE = FOLDER.encode()
ID = r"(?:[0-9a-f]{40}|[0-9a-f]{64})"
"""The pattern of an id, SHA-1 or SHA-256."""
REF = r"refs/[^\s:^~?*\[\\\x00-\x1f\x7f]+"
"""The pattern of a ref name, without anything that git could interpret as more than a name."""
ENTRIES = {size: re.compile(rb"([0-7]+) ([^\0]+)\0(.{%d})" % size, re.DOTALL) for size in (20, 32)}
"""An entry of a tree, by id length in bytes."""
SHA1_DIGITS, SHA256_DIGITS = 40, 64  # of an id
DEEPEST = 200  # folders processed here: git handles deeper ones
SIGNATURE = re.compile(rb"(.*?) ?<.*> (\d{1,11}) [+-]\d{4}", re.DOTALL)
ODD_ENDS = "".join(map(chr, range(33))) + ".,:;<>\"\\'"  # characters that git strips from a person's name

Node = tuple[bytes, bytes]
"""The mode of an entry and its id, as stored in a tree."""
Tree = Mapping[bytes, Node]
EMPTY: Tree = {}


@dataclass(frozen=True, slots=True)
class Commit:
    """A stored commit."""

    tree: Sha
    parents: tuple[Sha, ...]
    author: bytes
    committer: bytes
    message: bytes


def new_digest(digits: int) -> "hashlib._Hash":
    """Return the hash function for ids of this length."""
    return hashlib.sha1(usedforsecurity=False) if digits == SHA1_DIGITS else hashlib.sha256()


def object_id(kind: str, content: bytes, *, digits: int) -> Sha:
    """Return the id of an object in a repository with ids of this length."""
    digest = new_digest(digits)
    digest.update(b"%b %d\0" % (kind.encode(), len(content)))
    digest.update(content)
    return Sha(digest.hexdigest())


# ---- trees -----------------------------------------------------------------------------------------------------------


def parse_tree(content: bytes, id_size: int = 20) -> dict[bytes, Node]:
    """Parse the entries of a tree by name. Raises `ValueError` if the content is not a tree."""
    entries = ENTRIES[id_size].findall(content)
    if sum([len(mode) + len(name) for mode, name, _ in entries]) + (id_size + 2) * len(entries) != len(content):
        raise ValueError("not a tree")  # bytes between the entries
    return {name: (mode, id_) for mode, name, id_ in entries}


def format_tree(tree: Tree) -> bytes:
    """Format a tree as git stores it: folders sort as if their name ended with a slash."""
    entries = [(name + b"/" if mode == TREE else name, mode, name, id_) for name, (mode, id_) in tree.items()]
    entries.sort()
    return b"".join([b"%b %b\0%b" % (mode, name, id_) for _, mode, name, id_ in entries])


def folder_node(id_: Sha) -> Node:
    """Return the entry of a folder with this tree."""
    return TREE, bytes.fromhex(id_)


def node_id(node: Node) -> Sha:
    """Return the id of an entry."""
    return Sha(node[1].hex())


def is_folder(node: Node | None) -> bool:
    return node is not None and node[0] == TREE


# ---- commits ---------------------------------------------------------------------------------------------------------


def parse_commit(content: bytes) -> Commit:
    """Parse a stored commit. Missing fields are empty."""
    head, _, message = content.partition(b"\n\n")
    values: dict[bytes, list[bytes]] = {}
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        values.setdefault(key, []).append(value)
    tree, author, committer = (values.get(key, [b""])[0] for key in (b"tree", b"author", b"committer"))
    parents = tuple(Sha(parent.decode("ascii")) for parent in values.get(b"parent", ()))
    return Commit(Sha(tree.decode("ascii")), parents, author, committer, message)


def signed(person: Person, date: str) -> bytes:
    """Format a person and a date as in a commit."""
    name, email = (re.sub(r"[<>\n\0]", "", part.strip(ODD_ENDS)) for part in (person.name, person.email))
    return f"{name} <{email}> {date}".encode()


def signed_now(person: Person) -> bytes:
    now = int(time.time())
    minutes = time.localtime(now).tm_gmtoff // 60
    hours, rest = divmod(abs(minutes), 60)
    return signed(person, f"{now} {'-' if minutes < 0 else '+'}{hours:02}{rest:02}")


def parse_signature(signature: bytes) -> tuple[str, float]:
    """Parse the name and the time of an author or committer line: "" and 0 if it is not in git's format."""
    match = SIGNATURE.fullmatch(signature)
    return (match[1].decode("utf-8", "replace"), float(match[2])) if match else ("", 0.0)


# ---- pack format -----------------------------------------------------------------------------------------------------
# The pack format: written without deltas, and read as hostile input.
#
# Every limit is checked before git reads a byte of it. A pack of a kilobyte can contain a file of a gigabyte, and a
# delta of fifty bytes can produce one. So each entry's size is read from its header, each delta's from its own header,
# and inflating stops at the announced size.


MAGIC, VERSION = b"PACK", 2
HEADER = 12
KINDS = {1: "commit", 2: "tree", 3: "blob", 6: "offset delta", 7: "delta"}
OFFSET_DELTA, DELTA = 6, 7
NUMBERS = {name: number for number, name in KINDS.items() if number < OFFSET_DELTA}
PART = 16 * 1024
LONGEST_VARINT = 10  # bytes: more than any accepted size needs


class PackError(ValueError):
    """The reason why a pack is rejected."""


@dataclass(frozen=True, slots=True)
class PackLimits:
    """The limits of a pack."""

    packed_bytes: int = 64 * 1024 * 1024
    objects: int = 100_000
    bytes: int = 512 * 1024 * 1024
    """The total size of all objects after deltas are applied."""


def format_pack(objects: Sequence[tuple[str, bytes]], *, digits: int = 40) -> bytes:
    """Format a pack of these objects, kinds and contents, without deltas."""
    head = MAGIC + VERSION.to_bytes(4) + len(objects).to_bytes(4)
    pack = head + b"".join(
        [_header_of(NUMBERS[kind], len(content)) + zlib.compress(content) for kind, content in objects]
    )
    return pack + _checksum(pack, digits)


def _header_of(kind: int, size: int) -> bytes:
    """Format the start of an entry."""
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
    """Return the number of objects in a pack. Raises `PackError` if it is damaged or exceeds a limit."""
    trailer = digits // 2
    if len(pack) > limits.packed_bytes:
        raise PackError(f"the pack has {len(pack)} bytes, and the limit is {limits.packed_bytes}")
    if len(pack) < HEADER + trailer or pack[:4] != MAGIC or int.from_bytes(pack[4:8]) != VERSION:
        raise PackError("it is not a version 2 pack")
    if _checksum(pack[:-trailer], digits) != pack[-trailer:]:
        raise PackError("the pack is damaged: its checksum differs")
    count = int.from_bytes(pack[8:HEADER])
    if count > limits.objects:
        raise PackError(f"the pack has {count} objects, and the limit is {limits.objects}")
    body = memoryview(pack)[:-trailer]
    at, total = HEADER, 0
    for _ in range(count):
        at, size = _entry(body, at, trailer, limits.bytes - total)
        total += size
    if at != len(body):
        raise PackError("the pack has bytes after its last object")
    return count


def _entry(body: memoryview, at: int, id_bytes: int, room: int) -> tuple[int, int]:
    """Return the end of an entry, and the size of its object."""
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
    """Inflate an entry, and return its data and its end. The parts are small, because zlib copies their rest."""
    inflater, content = zlib.decompressobj(), bytearray()
    while not inflater.eof:
        part = body[at : at + PART]
        if not part:
            raise PackError("the pack ends in the middle of an object")
        try:
            content += inflater.decompress(part, size + 1 - len(content))
        except zlib.error as error:
            raise PackError(f"can't inflate an object in the pack: {error}") from None
        at += len(part) - len(inflater.unconsumed_tail) - len(inflater.unused_data)
        if len(content) > size:
            break
    if len(content) != size:
        raise PackError("an object in the pack differs in size from its header")
    return bytes(content), at


def _entry_header(body: memoryview, at: int) -> tuple[int, int, int]:
    """Parse the kind of an entry, the size of its data, and the start of its data."""
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
    """The larger of the source size and the result size of a delta."""
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
