"""What every request has to pass before a page sees it, and the headers that every answer carries.

A page elsewhere can make a browser send requests here. It can't know a session's cookie, the browser doesn't send that
cookie along (`SameSite=Strict`), and nothing is changed by a request that a form or an image could make.
"""

import sys
import traceback
from collections.abc import Mapping

from aiohttp import web
from aiohttp.typedefs import Handler

from dashboards.http.address import AllowedHosts
from dashboards.web.access import Access, Session

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
MARK = "X-Fleet-Request"  # a header that no form can send
SIGN_IN, METRICS = "/sign-in", "/metrics"
SESSION: web.RequestKey[Session] = web.RequestKey("session", Session)


class Guard:
    """The rules for requests to a server."""

    def __init__(self, access: Access, hosts: AllowedHosts, cookie: str) -> None:
        self.access, self._hosts, self.cookie = access, hosts, cookie

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            answer = self._refusal(request) or await handler(request)
        except web.HTTPException as error:
            answer = error
        except Exception as bug:  # noqa: BLE001 - the edge: what one request breaks concerns no other
            note_bug(bug)
            answer = refusal(500, "This page can't be drawn: a bug of fleet. What it was is where `fleet web` prints.")
        if not answer.prepared:  # an event stream has sent its headers
            answer.headers.update({name: text for name, text in HEADERS.items() if name not in answer.headers})
        if isinstance(answer, web.HTTPException):
            raise answer
        return answer

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self._hosts.allows(request.headers.get("Host", "")):
            return refusal(403, "Requests for this host are not answered; `fleet web --allow-host NAME` allows it.")
        if request.method not in {"GET", "HEAD", "POST"}:
            return refusal(405, "Only GET, HEAD and POST are answered.")
        if request.path == SIGN_IN:
            return None
        session = self.access.session(self._secret(request))
        if session is None:
            return refusal(401, "Open the link that `fleet web` printed. It works once; start it again for another.")
        if session.role == "scrape" and (request.path != METRICS or request.method == "POST"):
            return refusal(403, "This token is for metrics.")
        request[SESSION] = session
        return _refused_change(request, session) if request.method == "POST" else None

    def _secret(self, request: web.Request) -> str:
        """What a request shows of its session: a browser a cookie, a scraper of metrics a token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        is_scraper = request.path == METRICS and scheme.lower() == "bearer"
        return token.strip() if is_scraper else request.cookies.get(self.cookie, "")


def note_bug(bug: Exception) -> None:
    sys.stderr.write("".join(traceback.format_exception(bug)))


def _refused_change(request: web.Request, session: Session) -> web.Response | None:
    if session.role != "decide":
        return refusal(403, "This browser may only read.")
    if request.content_type != "application/json" or request.headers.get(MARK) != "1":
        return refusal(415, f"Changes are JSON, with the header {MARK}.")
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in {"same-origin", "none"}:
        return refusal(403, "Requests of other sites are not answered.")
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("Host"):
        return refusal(403, "Requests of other origins are not answered.")
    return None


def refusal(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
