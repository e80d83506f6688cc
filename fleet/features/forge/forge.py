"""What the fleet needs of a forge, in words of its own: places and references, values, and the client of a repository.

A short form names the usual host: `gh:OWNER/REPO#12`, `gl:GROUP/PROJECT#12`, `gl:GROUP/PROJECT!12`. An address in full
names any host. An option never passes. Every text of a value was written by others, and is kept as it is.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict

from fleet.core.base.forges import FORGES, ForgeKind
from fleet.errors import UsageError

# ---- places ----------------------------------------------------------------------------------------------------------


LONGEST = 300  # characters of a reference
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::\d{1,5})?")
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,254}")  # a segment: never an option
_SHORT = re.compile(rf"({'|'.join(each.prefix for each in FORGES)}):([^\s#!]+)[#!](\d{{1,10}})")
_PAGES = sorted(
    (
        *((page, each, "issue") for each in FORGES for page in each.issue_pages),
        *((page, each, "pull") for each in FORGES for page in each.pull_pages),
    ),
    key=lambda page: -len(page[0]),  # one may end like another
)
"""What stands between the repository and the number in the address of a page."""
NAMES = " or ".join(each.name for each in FORGES)
PREFIXES = {each.prefix: each for each in FORGES}


@dataclass(frozen=True, slots=True)
class Place:
    """A repository on a forge."""

    kind: ForgeKind = field(repr=False)
    host: str
    repo: str
    """OWNER/REPO; on GitLab a project below any number of groups."""

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host):
            raise UsageError(f"{self.host!r} is not the name of a host")
        names = self.repo.split("/")
        fits = len(names) in self.kind.depths
        if not fits or not all(_NAME.fullmatch(name) and name.strip(".") for name in names):
            raise UsageError(f"{self.repo!r} is not the name of a repository", hint=f"write it as {self.kind.form}")

    @property
    def argument(self) -> str:
        """HOST/OWNER/REPO, as `gh` takes it."""
        return f"{self.host}/{self.repo}"

    @property
    def project(self) -> str:
        """The project in a path of GitLab's API."""
        return f"projects/{quote(self.repo, safe='')}"

    def issue_text(self, number: int) -> str:
        return f"{self}#{number}"

    def pull_text(self, number: int) -> str:
        return f"{self}{self.kind.pull_sign}{number}"

    def __str__(self) -> str:
        host = "" if self.host == self.kind.host else f"{self.host}/"
        return f"{self.kind.prefix}:{host}{self.repo}"


@dataclass(frozen=True, slots=True)
class Reference:
    """An issue or a pull request."""

    place: Place
    number: int


def issue_reference(text: str) -> Reference | None:
    """The issue that an argument names; None where it names none. Raises `UsageError` for a malformed one."""
    return _reference(text, "issue")


def pull_reference(text: str, here: Place | None = None) -> Reference | None:
    """The pull request that an argument names; a number alone is one of `here`."""
    if here is not None and re.fullmatch(r"[#!]?\d{1,10}", text):
        return Reference(here, int(text.lstrip("#!")))
    return _reference(text, "pull")


def _reference(text: str, wanted: str) -> Reference | None:
    if len(text) > LONGEST:
        return None
    if short := _SHORT.fullmatch(text):
        kind = PREFIXES[short[1]]
        return Reference(Place(kind, kind.host, short[2]), int(short[3]))
    if not text.startswith(("https://", "http://")):
        return None
    parts = urlsplit(text)
    for middle, kind, what in _PAGES:
        repo, found, rest = parts.path.strip("/").partition(middle)
        number = rest.partition("/")[0]
        if found and what == wanted and re.fullmatch(r"\d{1,10}", number):
            return Reference(Place(kind, _host_of(parts.netloc), repo), int(number))
    return None


def _host_of(netloc: str) -> str:
    """The host without an account and its token."""
    return netloc.rpartition("@")[2].lower()


def place_of_remote(url: str, kind: ForgeKind | None = None) -> Place | None:
    """The repository that the URL of a git remote names; None where it is not on a forge that is known by its host."""
    if "://" in url:
        parts = urlsplit(url)
        host, path = _host_of(parts.netloc), parts.path
        host = (
            host if parts.scheme in {"http", "https"} else host.partition(":")[0]
        )  # a port of ssh is not one of the API
    elif scp := re.fullmatch(r"(?:[^@/:]+@)?([^/:]+):(.+)", url):
        host, path = scp[1].lower(), scp[2]
    else:
        return None
    kind = kind or kind_of(host)
    if kind is None:
        return None
    try:
        return Place(kind, host, path.strip("/").removesuffix(".git"))
    except UsageError:
        return None


def kind_of(host: str) -> ForgeKind | None:
    """The forge that a host runs, as its name says."""
    labels = host.partition(":")[0].split(".")
    return next((each for each in FORGES if each.name.lower() in labels or host.endswith(each.hosts)), None)


# ---- values ----------------------------------------------------------------------------------------------------------


PullState = Literal["open", "closed", "merged"]
CheckState = Literal["passed", "failed", "pending", "skipped"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Comment(_Value):
    """A comment on an issue or a pull request, or in a thread."""

    id: str
    author: str
    """Empty where the account is gone."""
    body: str
    created_at: str = ""
    is_mine: bool = False
    """Whether the account that is logged in wrote it."""


class Issue(_Value):
    """An issue with its conversation."""

    number: int
    title: str
    body: str
    url: str
    author: str
    is_open: bool
    labels: tuple[str, ...] = ()
    comments: tuple[Comment, ...] = ()


class Pull(_Value):
    """A pull request; on GitLab, a merge request."""

    number: int
    url: str
    title: str
    body: str
    state: PullState
    is_draft: bool
    head_branch: str
    head_sha: str
    base_branch: str
    author: str
    labels: tuple[str, ...] = ()
    is_cross_repository: bool = False
    """Whether its branch is in another repository, such as a fork."""


class Check(_Value):
    """What CI says of the head of a pull request."""

    name: str
    state: CheckState
    link: str = ""
    sha: str
    """The commit that it is about."""
    job: str = ""
    """Names its log for `Forge.log`; empty where the forge has none."""


class Thread(_Value):
    """A conversation of a review."""

    id: str
    path: str = ""
    line: int | None = None
    """The line in the new version of the file; None where it is about the file, or the line is gone."""
    is_resolved: bool = False
    is_outdated: bool = False
    comments: tuple[Comment, ...] = ()
    """The first of them begins it."""


class Draft(_Value):
    """A pull request to open."""

    title: str
    body: str
    head_branch: str
    base_branch: str


class Forge(Protocol):
    """One repository on a forge. Every method raises `ForgeError`; after one that changes something, read it back."""

    @property
    def place(self) -> Place: ...

    async def default_branch(self) -> str: ...

    async def may_write(self, account: str) -> bool:
        """Whether an account may push to the repository."""
        ...

    async def issue(self, number: int) -> Issue: ...

    async def pull(self, number: int) -> Pull: ...

    async def pulls_of(self, head_branch: str) -> tuple[Pull, ...]:
        """All pull requests of a branch of the repository itself, open or not, the latest first."""
        ...

    def opening(self, draft: Draft) -> tuple[str, ...]:
        """The arguments that open it; the program's standard input says the rest."""
        ...

    async def open_pull(self, draft: Draft) -> Pull:
        """Open a draft."""
        ...

    async def edit_pull(self, number: int, *, body: str, base_branch: str) -> None:
        """Replace its text and what it goes into; its title is the reviewers'."""
        ...

    async def checks(self, pull: Pull) -> tuple[Check, ...]: ...

    async def log(self, check: Check) -> str:
        """The end of the log of a check that failed; empty where there is none."""
        ...

    async def threads(self, number: int) -> tuple[Thread, ...]:
        """The threads of a review, the oldest first."""
        ...

    async def comments(self, number: int) -> tuple[Comment, ...]:
        """What was said below a pull request itself, and what reviews said as a whole; the oldest first."""
        ...

    async def comment(self, number: int, body: str, *, thread: str = "") -> None:
        """Answer in a thread of a review, or below the pull request itself."""
        ...
