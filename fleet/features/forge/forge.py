"""The interface to forges: repositories and references, values, and the protocol of a client.

A short form refers to the default host: `gh:OWNER/REPO#12`, `gl:GROUP/PROJECT#12`, `gl:GROUP/PROJECT!12`. A full URL
can refer to any host. Names that look like options are rejected. All texts in values were written by others and are
kept unchanged.
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
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,254}")  # one path segment; can't look like an option
_SHORT = re.compile(rf"({'|'.join(each.prefix for each in FORGES)}):([^\s#!]+)[#!](\d{{1,10}})")
_PAGES = sorted(
    (
        *((page, each, "issue") for each in FORGES for page in each.issue_pages),
        *((page, each, "pull") for each in FORGES for page in each.pull_pages),
    ),
    key=lambda page: -len(page[0]),  # longest first: one may be the end of another
)
"""The parts between the repository and the number in the URL of a page."""
NAMES = " or ".join(each.name for each in FORGES)
PREFIXES = {each.prefix: each for each in FORGES}


@dataclass(frozen=True, slots=True)
class ForgePlace:
    """A repository on a forge."""

    kind: ForgeKind = field(repr=False)
    host: str
    repo: str
    """OWNER/REPO; on GitLab, a project in any number of nested groups."""

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host):
            raise UsageError(f"{self.host!r} is not a valid host name")
        names = self.repo.split("/")
        fits = len(names) in self.kind.depths
        if not fits or not all(_NAME.fullmatch(name) and name.strip(".") for name in names):
            raise UsageError(f"{self.repo!r} is not a valid repository name", hint=f"use the form {self.kind.form}")

    @property
    def argument(self) -> str:
        """HOST/OWNER/REPO, for `gh`."""
        return f"{self.host}/{self.repo}"

    @property
    def project(self) -> str:
        """The project in paths of GitLab's API."""
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

    place: ForgePlace
    number: int


def issue_reference(text: str) -> Reference | None:
    """Parse a reference to an issue, or None if the text is not one. Raises `UsageError` if it is malformed."""
    return _reference(text, "issue")


def pull_reference(text: str, here: ForgePlace | None = None) -> Reference | None:
    """Parse a reference to a pull request. A bare number refers to the repository `here`."""
    if here is not None and re.fullmatch(r"[#!]?\d{1,10}", text):
        return Reference(here, int(text.lstrip("#!")))
    return _reference(text, "pull")


def _reference(text: str, wanted: str) -> Reference | None:
    if len(text) > LONGEST:
        return None
    if short := _SHORT.fullmatch(text):
        kind = PREFIXES[short[1]]
        return Reference(ForgePlace(kind, kind.host, short[2]), int(short[3]))
    if not text.startswith(("https://", "http://")):
        return None
    parts = urlsplit(text)
    for middle, kind, what in _PAGES:
        repo, found, rest = parts.path.strip("/").partition(middle)
        number = rest.partition("/")[0]
        if found and what == wanted and re.fullmatch(r"\d{1,10}", number):
            return Reference(ForgePlace(kind, _host_of(parts.netloc), repo), int(number))
    return None


def _host_of(netloc: str) -> str:
    """Return the host without credentials."""
    return netloc.rpartition("@")[2].lower()


def place_of_remote(url: str, kind: ForgeKind | None = None) -> ForgePlace | None:
    """Return the repository for the URL of a git remote, or None if its host is not a known forge."""
    if "://" in url:
        parts = urlsplit(url)
        host, path = _host_of(parts.netloc), parts.path
        host = (
            host if parts.scheme in {"http", "https"} else host.partition(":")[0]
        )  # an SSH port is not the port of the API
    elif scp := re.fullmatch(r"(?:[^@/:]+@)?([^/:]+):(.+)", url):
        host, path = scp[1].lower(), scp[2]
    else:
        return None
    kind = kind or kind_of(host)
    if kind is None:
        return None
    try:
        return ForgePlace(kind, host, path.strip("/").removesuffix(".git"))
    except UsageError:
        return None


def kind_of(host: str) -> ForgeKind | None:
    """Recognize the forge of a host by its name."""
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
    """Empty if the account was deleted."""
    body: str
    created_at: str = ""
    is_mine: bool = False
    """Whether the logged-in account wrote it."""


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
    """The result of a CI check on the head of a pull request."""

    name: str
    state: CheckState
    link: str = ""
    sha: str
    """The commit that it ran on."""
    job: str = ""
    """The ID of its log for `Forge.log`, or empty if there is no log."""


class Thread(_Value):
    """A review thread."""

    id: str
    path: str = ""
    line: int | None = None
    """The line in the new version of the file, or None for a thread about the file or about a deleted line."""
    is_resolved: bool = False
    is_outdated: bool = False
    comments: tuple[Comment, ...] = ()
    """The comments, the oldest first."""


class Draft(_Value):
    """A pull request to open."""

    title: str
    body: str
    head_branch: str
    base_branch: str


class Forge(Protocol):
    """The client of one repository on a forge. All methods raise `ForgeError`. After a failed change, read it back."""

    @property
    def place(self) -> ForgePlace: ...

    async def default_branch(self) -> str: ...

    async def may_write(self, account: str) -> bool:
        """Return whether an account may push to the repository."""
        ...

    async def issue(self, number: int) -> Issue: ...

    async def pull(self, number: int) -> Pull: ...

    async def pulls_of(self, head_branch: str) -> tuple[Pull, ...]:
        """Return all pull requests from a branch of this repository, open or not, the latest first."""
        ...

    def opening(self, draft: Draft) -> tuple[str, ...]:
        """Return the arguments that open it. Its text goes to the program's standard input."""
        ...

    async def open_pull(self, draft: Draft) -> Pull:
        """Open a draft."""
        ...

    async def edit_pull(self, number: int, *, body: str, base_branch: str) -> None:
        """Replace its text and base branch, but not its title, which reviewers may change."""
        ...

    async def checks(self, pull: Pull) -> tuple[Check, ...]: ...

    async def log(self, check: Check) -> str:
        """Return the end of the log of a failed check, or empty if there is no log."""
        ...

    async def threads(self, number: int) -> tuple[Thread, ...]:
        """Return the review threads, the oldest first."""
        ...

    async def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the comments on the pull request and the summary comments of reviews, the oldest first."""
        ...

    async def comment(self, number: int, body: str, *, thread: str = "") -> None:
        """Reply in a review thread, or comment on the pull request."""
        ...
