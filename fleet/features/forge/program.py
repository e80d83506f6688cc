"""Calls `gh` and `glab`: an argument list, text on standard input, limits on time and output, errors with their fix.

The programs run in an empty folder, so that they read no repository's configuration. They ask nothing and open no
pager.
"""

import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from anyio import create_task_group
from pydantic import TypeAdapter, ValidationError

from fleet.app.fleet import Fleet
from fleet.core.base.forges import FORGES, ForgeKind
from fleet.errors import FleetError
from fleet.features.forge.forge import Forge, Place
from fleet.features.parts import load_part
from fleet.read.base_view import Finding
from worktrees.base.process import Finished, Launch, run

# ---- errors ----------------------------------------------------------------------------------------------------------
# Why a forge did not do what was asked, by what the caller does next.


class ForgeError(FleetError):
    """A forge refused, or could not be understood. Where it was to change something, it may have: read it back."""


class ProgramMissingError(ForgeError):
    """`gh` or `glab` is not installed."""


class NotLoggedInError(ForgeError):
    """The program has no account on this host, or its token is not valid any more."""


class NotFoundError(ForgeError):
    """There is no such repository, issue or pull request, or the account may not see it."""


class RateLimitedError(ForgeError):
    """The forge answers nothing more for a while."""

    def __init__(self, message: str, *, retry_at: float | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_at = retry_at
        """When it answers again, as it says itself; None where it does not say."""


# ---- program ---------------------------------------------------------------------------------------------------------


TIMEOUT_S = 120.0  # of one call; a log of a hundred megabytes takes a while
CAP = 16 * 1024 * 1024  # bytes of one answer
SHOWN = 300  # characters of a program's error in ours

QUIET = {"NO_COLOR": "1", "PAGER": "cat"}
LOUD = ("CLICOLOR_FORCE",)
_LOGIN = re.compile(
    r"auth(?:entication)? (?:login|required|failed)|not logged in|HTTP 401|401 Unauthorized|Bad credentials",
    re.IGNORECASE,
)
_LIMITED = re.compile(r"rate limit|HTTP 429|429 Too Many|RATE_LIMITED|abuse detection", re.IGNORECASE)
_MISSING = re.compile(
    r"Could not resolve to|HTTP 404|404 .{0,40}Not Found|no (?:pull requests|issues) found", re.IGNORECASE
)

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class Program:
    """`gh` or `glab`, for one place."""

    place: Place
    environ: Mapping[str, str]
    """The user's: the program finds its account there."""
    held: tuple[int, ...] = ()
    """File descriptors that the program keeps open: locks that hold while it lives, even if this process was killed."""

    async def ask(self, *arguments: str, data: bytes = b"") -> str:
        """What the program prints. Raises a `ForgeError` that says why it failed."""
        finished = await self.finish(arguments, data)
        if finished.timed_out:
            raise ForgeError(f"{self._name(arguments)} did not answer within {TIMEOUT_S:g} s", hint="try again")
        if finished.exit_code != 0:
            raise self._error(arguments, finished)
        if finished.cut:
            raise ForgeError(f"{self._name(arguments)} answered more than {CAP // 1024 // 1024} MiB")
        return finished.text

    async def read(self, kind: TypeAdapter[Parsed], *arguments: str, data: bytes = b"") -> Parsed:
        """What the program prints as JSON, parsed."""
        text = await self.ask(*arguments, data=data)
        try:
            return kind.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the answer"
            raise ForgeError(
                f"{self._name(arguments)} answered what can't be understood: {where}: {first['msg']}"
            ) from None

    async def finish(self, arguments: Sequence[str], data: bytes = b"", *, timeout_s: float = TIMEOUT_S) -> Finished:
        """How the program ends, whatever its exit code."""
        kind = self.place.kind
        found = shutil.which(kind.program, path=self.environ.get("PATH"))
        if found is None:
            raise ProgramMissingError(
                f"{self.place} needs the program {kind.program}, which is not installed", hint=kind.install
            )
        left_out = {*LOUD, *kind.loud}
        env = {name: value for name, value in self.environ.items() if name not in left_out} | QUIET | {**kind.quiet}
        with tempfile.TemporaryDirectory(prefix="fleet-forge-") as folder:
            launch = Launch([found, *arguments], env, cwd=Path(folder), input=data, pass_fds=self.held)
            return await run(launch, timeout_s=timeout_s, cap=CAP)

    def _error(self, arguments: Sequence[str], finished: Finished) -> ForgeError:
        """Why a call failed, as far as the program says."""
        program, host = self.place.kind.program, self.place.host
        output = redact(finished.stderr.decode("utf-8", "replace").strip() or finished.text.strip())
        if finished.exit_code == self.place.kind.no_login or _LOGIN.search(output):
            login = f"{program} auth login --hostname {host}"
            return NotLoggedInError(f"{program} is not logged in to {host}", hint=f"run `{login}`, then try again")
        if _LIMITED.search(output):
            return RateLimitedError(f"{host} limits how often it is asked: {_shown(output)}", hint="try again later")
        said = f"{self._name(arguments)} failed: {_shown(output) or f'exit code {finished.exit_code}'}"
        if _MISSING.search(output):
            return NotFoundError(said, hint=f"check the name, and that the account of {program} may see it")
        return ForgeError(said)

    def _name(self, arguments: Sequence[str]) -> str:
        """The command without what was written by others."""
        return " ".join((self.place.kind.program, *arguments[:2]))


def _shown(output: str) -> str:
    """The last lines of a program's error on one line, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in output).split())
    return line if len(line) <= SHOWN else f"…{line[-SHOWN:]}"


def open_forge(place: Place, environ: Mapping[str, str], held: tuple[int, ...] = ()) -> Forge:
    """The client of a place."""
    forge: Forge = load_part(place.kind.client)(Program(place, environ, held))
    return forge


# ---- secrets ---------------------------------------------------------------------------------------------------------
# Tokens taken out of what is shown or kept: in addresses, and by the shapes that forges give their tokens.


HIDDEN = "***"
_IN_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s'\"]+@", re.IGNORECASE)
_TOKEN = re.compile(
    rf"\b(?:{'|'.join(each.tokens for each in FORGES if each.tokens)})"
    r"|(?i:\b(?:authorization|private-token|job-token)\b\s*[:=]\s*)\S+(?:[ \t]+\S+)?"
)


_HIDDEN = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


def visible(text: str) -> str:
    """What a page shows of a text."""
    return _HIDDEN.sub("", text)


def redact(text: str) -> str:
    """The text without accounts and tokens in addresses, and without anything shaped like a token."""
    return _TOKEN.sub(HIDDEN, _IN_ADDRESS.sub(rf"\1{HIDDEN}@", text))


# ---- findings --------------------------------------------------------------------------------------------------------
# What the doctor finds about forges.


LOOK_S = 10.0
ANY = "any/any"  # no repository is asked for


async def findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Whether `gh` and `glab` are there and logged in. No run needs them."""
    for finding in await forge_findings(fleet.environ):
        yield finding


async def forge_findings(environ: Mapping[str, str]) -> list[Finding]:
    """One for each forge; none of them is a failure."""
    found: dict[str, Finding] = {}

    async def look(kind: ForgeKind) -> None:
        found[kind.name] = await _finding(Place(kind, kind.host, ANY), environ)

    async with create_task_group() as tasks:
        for kind in FORGES:
            tasks.start_soon(look, kind)
    return [found[kind.name] for kind in FORGES]


async def _finding(place: Place, environ: Mapping[str, str]) -> Finding:
    name = place.kind.program
    try:
        status = await Program(place, environ).finish(("auth", "status"), timeout_s=LOOK_S)
    except ProgramMissingError as missing:
        return Finding(name, ok=True, says="not installed: `fleet pr` and issues as epics need it", fix=missing.hint)
    except ForgeError as error:
        return Finding(name, ok=True, says=error.message, fix=error.hint)
    if status.timed_out:
        return Finding(
            name, ok=True, says=f"installed; it did not answer within {LOOK_S:g} s", fix=f"{name} auth status"
        )
    if status.exit_code != 0:
        return Finding(name, ok=True, says="not logged in", fix=f"{name} auth login")
    return Finding(name, ok=True, says="logged in: issues and pull requests can be reached")
