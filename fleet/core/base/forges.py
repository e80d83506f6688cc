"""The supported forges, one record each, with everything that differs between them except API calls.

A record holds references and addresses, commit messages, CI configuration files and texts for users. It names its
client module below `fleet/features`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

CLOSE, FIX, RESOLVE = r"clos(?:e[sd]?|ing)", r"fix(?:e[sd]|ing)?", r"resolv(?:e[sd]?|ing)"


@dataclass(frozen=True, slots=True)
class ForgeKind:
    """Properties of a kind of forge, shared by all its repositories."""

    name: str
    """Also recognized in the labels of a host name, in lower case."""
    prefix: str
    """Of a reference in short."""
    host: str
    """The usual one."""
    program: str
    """The user's program that calls it."""
    install: str
    """Installation and login instructions for the program."""
    client: str
    """A class that takes a `Program` and satisfies `Forge`: `feature.module:name`, below `fleet.features`."""
    form: str
    """Pattern of repository names."""
    depths: range
    """Allowed numbers of path segments in a repository name."""
    issue_pages: tuple[str, ...]
    """Path between the repository and the number in the address of an issue."""
    pull_pages: tuple[str, ...]
    """Path between the repository and the number in the address of a pull request."""
    pull_sign: str
    """Prefix of a pull request's number in short references."""
    hosts: tuple[str, ...] = ()
    """Suffixes of other host names."""
    quiet: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Environment variables that disable prompts, the pager and update checks."""
    loud: tuple[str, ...] = ()
    """Environment variables that change the program's output or host. A debug log would contain tokens."""
    no_login: int | None = None
    """The exit code of the program without an account, if it has one for that."""
    tokens: str = ""
    """The shapes of its tokens, as a regular expression."""
    closing: tuple[str, ...] = (CLOSE, FIX, RESOLVE)
    """The words by which a commit message closes an issue, as regular expressions."""
    ci_files: tuple[str, ...] = ()
    """Paths of the forge's CI configuration."""


FORGES = (
    ForgeKind(
        name="GitHub",
        prefix="gh",
        host="github.com",
        hosts=(".ghe.com",),
        program="gh",
        install="install it from https://cli.github.com, then `gh auth login`",
        client="forge.github:GitHub",
        form="OWNER/REPO",
        depths=range(2, 3),
        issue_pages=("/issues/",),
        pull_pages=("/pull/",),
        pull_sign="#",
        quiet={"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "GH_PAGER": "cat"},
        loud=("GH_FORCE_TTY", "GH_DEBUG", "GH_REPO"),
        no_login=4,
        tokens=r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}",
        ci_files=(".github/workflows/*.yml", ".github/workflows/*.yaml"),
    ),
    ForgeKind(
        name="GitLab",
        prefix="gl",
        host="gitlab.com",
        program="glab",
        install="install it from https://gitlab.com/gitlab-org/cli, then `glab auth login`",
        client="forge.gitlab:GitLab",
        form="GROUP/PROJECT",
        depths=range(2, 22),  # twenty groups
        issue_pages=("/-/issues/", "/-/work_items/"),
        pull_pages=("/-/merge_requests/",),
        pull_sign="!",
        quiet={"GLAB_CHECK_UPDATE": "false", "NO_PROMPT": "1"},
        loud=("GLAB_DEBUG_HTTP", "DEBUG"),
        tokens=r"gl[a-z]{2,8}-[A-Za-z0-9_.-]{16,}",
        closing=(CLOSE, FIX, RESOLVE, r"implement(?:s|ed|ing)?"),
        ci_files=(".gitlab-ci.yml",),
    ),
)
