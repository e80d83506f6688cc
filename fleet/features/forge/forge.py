"""What the fleet needs of a forge, in words of its own. Every text was written by others, and is kept as it is."""

from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

from fleet.features.forge.place import Place

PullState = Literal["open", "closed", "merged"]
CheckState = Literal["passed", "failed", "pending", "skipped"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


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


class Repository(_Value):
    """What a forge says of a repository."""

    default_branch: str
    may_push: bool


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

    async def repository(self) -> Repository: ...

    async def me(self) -> str:
        """The name of the account that is logged in."""
        ...

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

    async def reply(self, number: int, thread: str, body: str) -> None: ...

    async def resolve(self, number: int, thread: str) -> None: ...

    async def comment(self, number: int, body: str) -> None: ...
