"""Signatures and sign-offs of the person who takes the commits.

The operator's configuration names the key and the signing program. Git gets both as arguments, and does not read the
configuration of a repository (docs/decisions/0064).
"""

import re
from dataclasses import dataclass

from fleet.core.base.ids import Sha
from fleet.errors import UsageError
from fleet.ports import settings
from worktrees.git.object_format import Commit, Person
from worktrees.git.program import Git, signing_environment, text, user_setting

PERSON = re.compile(r"([^<>\n]+?) *<([^<>\s]+@[^<>\s]+)>")
SIGNATURE = re.compile(rb"(.*?) ?<(.*)> (\d+ [+-]\d{4})", re.DOTALL)
TRAILER = re.compile(r"[A-Za-z][A-Za-z-]*: .*")


async def taker_of(own: settings.GitSection) -> Person:
    """Return the person who takes the commits. Raises `UsageError` if that is not configured."""
    match = PERSON.fullmatch(own.taker.strip())
    if match is not None:
        return Person(match[1], match[2])
    name, email = await user_setting("user.name"), await user_setting("user.email")
    if own.taker or not name or not email:
        raise UsageError(
            f"git.taker is {own.taker!r}, not a name and an address"
            if own.taker
            else "git.taker is not set, and git has no user.name and user.email",
            hint='set git.taker = "NAME <EMAIL>" in your configuration, or user.name and user.email in git',
        )
    return Person(name, email)


async def put_taken(
    git: Git, signing: settings.GitSection, commit: Commit, *, tree: Sha, parent: Sha, taker: Person
) -> Sha:
    """Copy a commit onto another parent, signed and signed off according to the settings."""
    message = commit.message.decode("utf-8", "surrogateescape")
    if signing.sign_off:
        message = signed_off(message, taker)
    match = SIGNATURE.fullmatch(commit.author)
    if match is None:
        raise UsageError("can't sign a commit: its author line is not in git's format")
    name, email, date = (part.decode("utf-8", "surrogateescape") for part in match.groups())
    env = taker.environment() | {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": f"@{date}"}
    options: tuple[str, ...] = ()
    sign: tuple[str, ...] = ()
    if signing.sign:
        env |= signing_environment()
        program = "gpg.program" if signing.sign == "openpgp" else f"gpg.{signing.sign}.program"
        values = {"gpg.format": signing.sign, "user.signingKey": signing.signing_key, program: signing.signing_program}
        options = tuple(part for key, value in values.items() if value for part in ("-c", f"{key}={value}"))
        sign = (f"-S{signing.signing_key}",)
    data = message.encode("utf-8", "surrogateescape")
    return Sha(await git.line(*options, "commit-tree", tree, "-p", parent, *sign, env=env, data=data))


def signed_off(message: str, person: Person) -> str:
    """Add the person's sign-off to the trailers of the message."""
    line = f"Signed-off-by: {person.name} <{person.email}>"
    body = message.rstrip("\n")
    last = body.rsplit("\n\n", 1)[-1].splitlines()
    if line in last:
        return message
    has_trailers = "\n\n" in body and all(TRAILER.fullmatch(each) for each in last)
    return f"{body}\n{line}\n" if has_trailers else f"{body}\n\n{line}\n"


# ---- customs ---------------------------------------------------------------------------------------------------------
# Conventions of a repository: whether its commits are signed and signed off. A hint at its requirements.


LATEST = 20  # commits to inspect
FEWEST = 3  # with fewer commits there is no answer
MOSTLY = 0.9


@dataclass(frozen=True, slots=True)
class CommitConventions:
    """Common properties of a repository's latest commits."""

    commits: int = 0
    signed: int = 0
    signed_off: int = 0

    @property
    def signs(self) -> bool:
        return self._is_usual(self.signed)

    @property
    def signs_off(self) -> bool:
        return self._is_usual(self.signed_off)

    def _is_usual(self, number: int) -> bool:
        return self.commits >= FEWEST and number >= MOSTLY * self.commits


async def customs(git: Git, tip: Sha) -> CommitConventions:
    """Return the conventions of a branch, from the raw text of its latest commits, without verifying signatures."""
    shas = text(await git("rev-list", f"--max-count={LATEST}", "--no-merges", tip)).split()
    raw = [text(await git("cat-file", "commit", sha)) for sha in shas]
    parts = [commit.partition("\n\n") for commit in raw]
    return CommitConventions(
        commits=len(parts),
        signed=sum("\ngpgsig" in head for head, _, _ in parts),
        signed_off=sum("\nSigned-off-by: " in body for _, _, body in parts),
    )
