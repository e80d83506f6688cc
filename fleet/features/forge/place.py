"""Where something is on a forge, read from an argument or from a remote's URL. An option never passes.

A short form names the usual host: `gh:OWNER/REPO#12`, `gl:GROUP/PROJECT#12`, `gl:GROUP/PROJECT!12`. An address in full
names any host.
"""

import re
from dataclasses import dataclass
from typing import Literal, assert_never
from urllib.parse import quote, urlsplit

from fleet.errors import UsageError

Kind = Literal["github", "gitlab"]
PREFIXES: dict[str, Kind] = {"gh": "github", "gl": "gitlab"}
HOSTS: dict[Kind, str] = {"github": "github.com", "gitlab": "gitlab.com"}
PROGRAMS: dict[Kind, str] = {"github": "gh", "gitlab": "glab"}

DEPTHS: dict[Kind, range] = {"github": range(2, 3), "gitlab": range(2, 22)}
"""How many names a repository's has: GitLab allows twenty groups."""

LONGEST = 300  # characters of a reference
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::\d{1,5})?")
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,254}")  # a segment: never an option
_SHORT = re.compile(r"(gh|gl):([^\s#!]+)[#!](\d{1,10})")
_PAGES: dict[str, tuple[Kind, str]] = {
    "/-/issues/": ("gitlab", "issue"),
    "/-/work_items/": ("gitlab", "issue"),
    "/-/merge_requests/": ("gitlab", "pull"),
    "/issues/": ("github", "issue"),
    "/pull/": ("github", "pull"),
}
"""What stands between the repository and the number in the address of a page."""


@dataclass(frozen=True, slots=True)
class Place:
    """A repository on a forge."""

    kind: Kind
    host: str
    repo: str
    """OWNER/REPO; on GitLab a project below any number of groups."""

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host):
            raise UsageError(f"{self.host!r} is not the name of a host")
        names = self.repo.split("/")
        fits = len(names) in DEPTHS[self.kind]
        if not fits or not all(_NAME.fullmatch(name) and name.strip(".") for name in names):
            form = "OWNER/REPO" if self.kind == "github" else "GROUP/PROJECT"
            raise UsageError(f"{self.repo!r} is not the name of a repository", hint=f"write it as {form}")

    @property
    def program(self) -> str:
        return PROGRAMS[self.kind]

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
        return f"{self}{'#' if self.kind == 'github' else '!'}{number}"

    def __str__(self) -> str:
        prefix = "gh" if self.kind == "github" else "gl"
        host = "" if self.host == HOSTS[self.kind] else f"{self.host}/"
        return f"{prefix}:{host}{self.repo}"


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
        return Reference(Place(kind, HOSTS[kind], short[2]), int(short[3]))
    if not text.startswith(("https://", "http://")):
        return None
    parts = urlsplit(text)
    for middle, (kind, what) in _PAGES.items():
        repo, found, rest = parts.path.strip("/").partition(middle)
        number = rest.partition("/")[0]
        if found and what == wanted and re.fullmatch(r"\d{1,10}", number):
            return Reference(Place(kind, _host_of(parts.netloc), repo), int(number))
    return None


def _host_of(netloc: str) -> str:
    """The host without an account and its token."""
    return netloc.rpartition("@")[2].lower()


def place_of_remote(url: str, kind: Kind | None = None) -> Place | None:
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


def kind_of(host: str) -> Kind | None:
    """The forge that a host runs, as its name says."""
    labels = host.partition(":")[0].split(".")
    if "github" in labels or host.endswith(".ghe.com"):
        return "github"
    return "gitlab" if "gitlab" in labels else None


def page_of(place: Place, number: int, *, issue: bool = False) -> str:
    """The address of a page."""
    match place.kind:
        case "github":
            return f"https://{place.host}/{place.repo}/{'issues' if issue else 'pull'}/{number}"
        case "gitlab":
            return f"https://{place.host}/{place.repo}/-/{'issues' if issue else 'merge_requests'}/{number}"
        case _:
            assert_never(place.kind)
