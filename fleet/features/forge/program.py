"""Call `gh` and `glab` with an argument list, text on standard input, and limits on time and output.

The programs run in an empty folder, so that they don't read the configuration of a repository. Prompts and pagers are
disabled.
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
from fleet.features.forge.forge import Forge, ForgePlace
from fleet.features.parts import load_part
from fleet.read.base_view import Finding
from worktrees.base.process import Finished, Launch, run

# ---- errors ----------------------------------------------------------------------------------------------------------
# Errors of forge calls, by the caller's next step.


class ForgeError(FleetError):
    """A forge call failed, or its answer can't be parsed. A change may have been made anyway: read it back."""


class ProgramMissingError(ForgeError):
    """`gh` or `glab` is not installed."""


class NotLoggedInError(ForgeError):
    """The program is not logged in to this host, or its token is no longer valid."""


class NotFoundError(ForgeError):
    """The repository, issue or pull request does not exist, or the account can't access it."""


class RateLimitedError(ForgeError):
    """The forge rejects calls until its rate limit resets."""

    def __init__(self, message: str, *, retry_at: float | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_at = retry_at
        """When the rate limit resets, or None if the forge does not report it."""


# ---- program ---------------------------------------------------------------------------------------------------------


TIMEOUT_S = 120.0  # per call; a log of a hundred megabytes takes a while
CAP = 16 * 1024 * 1024  # bytes per answer
SHOWN = 300  # characters of a program's error in our message

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

    place: ForgePlace
    environ: Mapping[str, str]
    """The user's environment, which the program needs to find its account."""
    held: tuple[int, ...] = ()
    """File descriptors of locks that stay held while the program runs, even if this process is killed."""

    async def ask(self, *arguments: str, data: bytes = b"") -> str:
        """Return the program's output. Raises a `ForgeError` with the reason if it fails."""
        finished = await self.finish(arguments, data)
        if finished.timed_out:
            raise ForgeError(f"{self._name(arguments)} timed out after {TIMEOUT_S:g} s", hint="try again")
        if finished.exit_code != 0:
            raise self._error(arguments, finished)
        if finished.cut:
            raise ForgeError(f"{self._name(arguments)} returned more than {CAP // 1024 // 1024} MiB")
        return finished.text

    async def read(self, kind: TypeAdapter[Parsed], *arguments: str, data: bytes = b"") -> Parsed:
        """Return the program's JSON output, parsed."""
        text = await self.ask(*arguments, data=data)
        try:
            return kind.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the answer"
            raise ForgeError(f"{self._name(arguments)} returned invalid JSON: {where}: {first['msg']}") from None

    async def finish(self, arguments: Sequence[str], data: bytes = b"", *, timeout_s: float = TIMEOUT_S) -> Finished:
        """Run the program and return its result, whatever its exit code."""
        kind = self.place.kind
        found = shutil.which(kind.program, path=self.environ.get("PATH"))
        if found is None:
            raise ProgramMissingError(
                f"{self.place} requires {kind.program}, which is not installed", hint=kind.install
            )
        left_out = {*LOUD, *kind.loud}
        env = {name: value for name, value in self.environ.items() if name not in left_out} | QUIET | {**kind.quiet}
        with tempfile.TemporaryDirectory(prefix="fleet-forge-") as folder:
            launch = Launch([found, *arguments], env, cwd=Path(folder), input=data, pass_fds=self.held)
            return await run(launch, timeout_s=timeout_s, cap=CAP)

    def _error(self, arguments: Sequence[str], finished: Finished) -> ForgeError:
        """Classify a failed call by the program's output."""
        program, host = self.place.kind.program, self.place.host
        output = redact(finished.stderr.decode("utf-8", "replace").strip() or finished.text.strip())
        if finished.exit_code == self.place.kind.no_login or _LOGIN.search(output):
            login = f"{program} auth login --hostname {host}"
            return NotLoggedInError(f"{program} is not logged in to {host}", hint=f"run `{login}`, then try again")
        if _LIMITED.search(output):
            return RateLimitedError(f"rate limit of {host} exceeded: {_shown(output)}", hint="try again later")
        said = f"{self._name(arguments)} failed: {_shown(output) or f'exit code {finished.exit_code}'}"
        if _MISSING.search(output):
            return NotFoundError(said, hint=f"check the name, and that your {program} account has access to it")
        return ForgeError(said)

    def _name(self, arguments: Sequence[str]) -> str:
        """Return the start of the command line, without arguments that others wrote."""
        return " ".join((self.place.kind.program, *arguments[:2]))


def _shown(output: str) -> str:
    """Return the end of a program's error on one line, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in output).split())
    return line if len(line) <= SHOWN else f"…{line[-SHOWN:]}"


def open_forge(place: ForgePlace, environ: Mapping[str, str], held: tuple[int, ...] = ()) -> Forge:
    """Return the client of a repository."""
    forge: Forge = load_part(place.kind.client)(Program(place, environ, held))
    return forge


# ---- secrets ---------------------------------------------------------------------------------------------------------
# Removes tokens from texts: credentials in URLs, and strings that match the token formats of forges.


HIDDEN = "***"
_IN_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s'\"]+@", re.IGNORECASE)
_TOKEN = re.compile(
    rf"\b(?:{'|'.join(each.tokens for each in FORGES if each.tokens)})"
    r"|(?i:\b(?:authorization|private-token|job-token)\b\s*[:=]\s*)\S+(?:[ \t]+\S+)?"
)


_HIDDEN = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


def visible(text: str) -> str:
    """Remove HTML comments, which the page does not show."""
    return _HIDDEN.sub("", text)


def redact(text: str) -> str:
    """Mask credentials in URLs and strings that look like tokens."""
    return _TOKEN.sub(HIDDEN, _IN_ADDRESS.sub(rf"\1{HIDDEN}@", text))


# ---- findings --------------------------------------------------------------------------------------------------------
# Checks of `fleet doctor`.


LOOK_S = 10.0
ANY = "any/any"  # a placeholder: the check does not use a repository


async def findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Check whether `gh` and `glab` are installed and logged in. Runs don't need them."""
    for finding in await forge_findings(fleet.environ):
        yield finding


async def forge_findings(environ: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each forge. None of them counts as a failure."""
    found: dict[str, Finding] = {}

    async def look(kind: ForgeKind) -> None:
        found[kind.name] = await _finding(ForgePlace(kind, kind.host, ANY), environ)

    async with create_task_group() as tasks:
        for kind in FORGES:
            tasks.start_soon(look, kind)
    return [found[kind.name] for kind in FORGES]


async def _finding(place: ForgePlace, environ: Mapping[str, str]) -> Finding:
    name = place.kind.program
    try:
        status = await Program(place, environ).finish(("auth", "status"), timeout_s=LOOK_S)
    except ProgramMissingError as missing:
        says = "not installed: required for `fleet pr` and for issues as epics"
        return Finding(name, ok=True, says=says, fix=missing.hint, warning=True)
    except ForgeError as error:
        return Finding(name, ok=True, says=error.message, fix=error.hint, warning=True)
    if status.timed_out:
        return Finding(
            name, ok=True, says=f"installed, no answer within {LOOK_S:g} s", fix=f"{name} auth status", warning=True
        )
    if status.exit_code != 0:
        return Finding(name, ok=True, says="not logged in", fix=f"{name} auth login", warning=True)
    return Finding(name, ok=True, says="logged in: issues and pull requests can be reached")
