"""The forges, one record each: everything that tells one from another, besides the calls of its program.

Whoever needs to know something of a forge reads it here: references and addresses, commit messages, the search for the
commands of CI, texts for people. Its client is the module below `fleet/features` that the record names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

CLOSE, FIX, RESOLVE = r"clos(?:e[sd]?|ing)", r"fix(?:e[sd]|ing)?", r"resolv(?:e[sd]?|ing)"


@dataclass(frozen=True, slots=True)
class ForgeKind:
    """What is the same for all repositories of one kind of forge."""

    name: str
    """Also what the labels of a host's name say, in lower case."""
    prefix: str
    """Of a reference in short."""
    host: str
    """The usual one."""
    program: str
    """The user's program that calls it."""
    install: str
    """How to get the program, and log in."""
    client: str
    """A class that takes a `Program` and satisfies `Forge`: `feature.module:name`, below `fleet.features`."""
    form: str
    """What the name of a repository looks like."""
    depths: range
    """How many names that are."""
    issue_pages: tuple[str, ...]
    """What stands between repository and number in the address of an issue."""
    pull_pages: tuple[str, ...]
    """The same in that of a pull request."""
    pull_sign: str
    """What stands before the number of a pull request in short."""
    hosts: tuple[str, ...] = ()
    """How the names of other hosts end."""
    quiet: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variables by which the program asks nothing, opens no pager and looks for no update."""
    loud: tuple[str, ...] = ()
    """Variables that change what the program prints, or where it looks; a debug log would hold tokens."""
    no_login: int | None = None
    """The exit code of the program without an account, if it has one for that."""
    tokens: str = ""
    """The shapes of its tokens, as a regular expression."""
    closing: tuple[str, ...] = (CLOSE, FIX, RESOLVE)
    """The words by which a commit message closes an issue, as regular expressions."""
    ci_files: tuple[str, ...] = ()
    """Where its own CI is configured."""


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
