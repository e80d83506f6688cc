"""Access to the pages: single-use sign-in links, and the sessions that they start.

A session is a random secret in a browser cookie, or in the configuration of a metrics scraper. The state directory
keeps only its digest, so that sessions survive a restart and a copy of the file does not grant access. All servers of
a state directory share the file. A session that one of them ends is over for all.
"""

import fcntl
import json
import os
import secrets
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, get_args

from aiohttp import web
from aiohttp.typedefs import Handler

from dashboards.address import AllowedHosts
from fleet.core.base.output import parse_json
from fleet.errors import FleetError

Role = Literal["decide", "read", "scrape"]
"""`read`: may open pages. `decide`: may also send requests to runs. `scrape`: may only read metrics."""

LINK_S = 600.0  # lifetime of a single-use link
SESSION_S = 30 * 86_400.0
MOST_SESSIONS = 100  # the oldest one is removed
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class WebSession:
    """The session of a browser or a scraper."""

    id: str
    """A display name. It does not grant access."""
    role: Role
    since: float
    digest: str
    """The digest of its secret."""


class WebAccess:
    """The valid links and sessions."""

    def __init__(self, file: Path, clock: Callable[[], float]) -> None:
        """Raises `FleetError` if the file can't be read."""
        self._file, self._clock = file, clock
        self._links: dict[str, tuple[Role, str, float]] = {}
        self._seen = _version(file)
        self._sessions = _read(file)

    def new_link(self, role: Role, page: str = "/") -> str:
        """Create a link to a page, and return its token."""
        token = secrets.token_urlsafe(SECRET_BYTES)
        self._links[_digest(token)] = role, page, self._clock() + LINK_S
        return token

    def start_session(self, token: str) -> tuple[str, str] | None:
        """Exchange the token of a link for a session secret and a page. None for an unknown, used or expired link."""
        role, page, until = self._links.pop(_digest(token), (None, "", 0.0))
        return None if role is None or self._clock() > until else (self.new_secret(role), page)

    def new_secret(self, role: Role) -> str:
        """Start a session, and return its secret."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        with self._changing():
            session = WebSession(secrets.token_hex(4), role, self._clock(), _digest(secret))
            self._keep([*self.sessions(), session][-MOST_SESSIONS:])
        return secret

    def session(self, secret: str) -> WebSession | None:
        self._refresh()
        found = self._sessions.get(_digest(secret))
        return found if found is not None and self._is_valid(found) else None

    def sessions(self) -> Sequence[WebSession]:
        """The valid sessions, oldest first."""
        self._refresh()
        return [each for each in self._sessions.values() if self._is_valid(each)]

    def revoke(self, id_: str) -> bool:
        """End a session. Return False for an unknown id."""
        with self._changing():
            before = self.sessions()
            left = [each for each in before if each.id != id_]
            self._keep(left)
        return len(left) < len(before)

    def _is_valid(self, session: WebSession) -> bool:
        return session.role == "scrape" or self._clock() - session.since <= SESSION_S

    def _refresh(self) -> None:
        """Read the file again if another process changed it. A damaged file is ignored."""
        if (version := _version(self._file)) != self._seen:
            self._seen = version
            with suppress(FleetError):
                self._sessions = _read(self._file)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Lock the file while it is read and replaced."""
        with ExitStack() as stack:
            with suppress(OSError):  # a full disk
                self._file.parent.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(open(f"{self._file}.lock", "w", encoding="utf-8", opener=_private))
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _keep(self, sessions: Sequence[WebSession]) -> None:
        self._sessions = {each.digest: each for each in sessions}
        text = json.dumps([asdict(each) for each in sessions])
        beside = self._file.with_name(f"{self._file.name}.new")
        with suppress(OSError):  # a full disk: the sessions are valid until this server stops
            with open(beside, "w", encoding="utf-8", opener=_private) as file:
                file.write(text)
            beside.replace(self._file)
            self._seen = _version(self._file)


def _version(file: Path) -> tuple[int, int] | None:
    """A value that changes whenever the file is replaced. None without a file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "replace")).hexdigest()


def _read(file: Path) -> dict[str, WebSession]:
    try:
        rows = parse_json(file.read_text(encoding="utf-8"))
        sessions = [WebSession(str(r["id"]), r["role"], float(r["since"]), str(r["digest"])) for r in rows]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FleetError(
            f"{file} can't be read: {error}", hint="remove the file, and open new links in all browsers"
        ) from error
    return {each.digest: each for each in sessions if each.role in get_args(Role)}


# ---- guard -----------------------------------------------------------------------------------------------------------
# The checks of every request, and the headers of every response.
#
# Another site can make a browser send requests to this server. It can't read the session cookie, the browser does not
# send that cookie along (`SameSite=Strict`), and requests from forms or images can't change anything.


HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Server": "fleet",
}
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
MARK = "X-Fleet-Request"  # a header that forms can't send
SIGN_IN, METRICS = "/sign-in", "/metrics"
SESSION: web.RequestKey[WebSession] = web.RequestKey("session", WebSession)


class Guard:
    """The rules for requests to a server."""

    def __init__(self, access: WebAccess, hosts: AllowedHosts, cookie: str) -> None:
        self.access, self._hosts, self.cookie = access, hosts, cookie

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            answer = self._refusal(request) or await handler(request)
        except web.HTTPException as error:
            answer = error
        except Exception as bug:  # noqa: BLE001 - the edge: an error in one request must not affect others
            note_bug(bug)
            answer = refusal(
                500, "Internal error: this page could not be rendered. Details are in the output of `fleet web`."
            )
        if not answer.prepared:  # an event stream has already sent its headers
            answer.headers.update({name: text for name, text in HEADERS.items() if name not in answer.headers})
        if isinstance(answer, web.HTTPException):
            raise answer
        return answer

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self._hosts.allows(request.headers.get("Host", "")):
            return refusal(403, "Unknown host. To allow it, start `fleet web --allow-host NAME`.")
        if request.method not in {"GET", "HEAD", "POST"}:
            return refusal(405, "Only GET, HEAD and POST are allowed.")
        if request.path == SIGN_IN:
            return None
        session = self.access.session(self._secret(request))
        if session is None:
            return refusal(
                401,
                "Open the sign-in link that `fleet web` printed. It works once. For a new one, restart `fleet web`.",
            )
        if session.role == "scrape" and (request.path != METRICS or request.method == "POST"):
            return refusal(403, "This token only grants access to /metrics.")
        request[SESSION] = session
        return _refused_change(request, session) if request.method == "POST" else None

    def _secret(self, request: web.Request) -> str:
        """The session secret of a request: the cookie of a browser, or the token of a scraper."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        is_scraper = request.path == METRICS and scheme.lower() == "bearer"
        return token.strip() if is_scraper else request.cookies.get(self.cookie, "")


def note_bug(bug: Exception) -> None:
    sys.stderr.write("".join(traceback.format_exception(bug)))


def _refused_change(request: web.Request, session: WebSession) -> web.Response | None:
    if session.role != "decide":
        return refusal(403, "This session is read-only.")
    if request.content_type != "application/json" or request.headers.get(MARK) != "1":
        return refusal(415, f"Changes must be JSON and have the header {MARK}.")
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in {"same-origin", "none"}:
        return refusal(403, "Cross-site requests are rejected.")
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("Host"):
        return refusal(403, "Cross-origin requests are rejected.")
    return None


def refusal(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
