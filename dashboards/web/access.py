"""Who may open the pages: links that work once, and the sessions that they start.

A session is a random secret in a cookie of the browser. Only its digest is kept, in a file of the state directory, so
that a restart of the server signs nobody out and the file lets nobody in.
"""

import json
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, get_args

from fleet.errors import FleetError

Role = Literal["decide", "read"]
"""`decide`: may also make requests to runs."""

LINK_S = 600.0  # a link works this long, and once
SESSION_S = 30 * 86_400.0
MOST_SESSIONS = 100  # the oldest one makes room
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that may open the pages."""

    id: str
    """A name for people; it opens nothing."""
    role: Role
    since: float
    digest: str
    """Of the secret in its cookie."""


class Access:
    """The links that were given out, and the sessions."""

    def __init__(self, file: Path, clock: Callable[[], float]) -> None:
        """Raises `FleetError` if the file can't be read."""
        self._file, self._clock = file, clock
        self._links: dict[str, tuple[Role, float]] = {}
        self._sessions = _read(file)

    def new_link(self, role: Role) -> str:
        """The token of a new link."""
        token = secrets.token_urlsafe(SECRET_BYTES)
        self._links[_digest(token)] = role, self._clock() + LINK_S
        return token

    def start_session(self, token: str) -> str | None:
        """Exchange the token of a link for the secret of a session; None if the link is unknown, used or too old."""
        role, until = self._links.pop(_digest(token), (None, 0.0))
        if role is None or self._clock() > until:
            return None
        secret = secrets.token_urlsafe(SECRET_BYTES)
        session = Session(secrets.token_hex(4), role, self._clock(), _digest(secret))
        self._keep([*self.sessions(), session][-MOST_SESSIONS:])
        return secret

    def session(self, secret: str) -> Session | None:
        found = self._sessions.get(_digest(secret))
        return found if found is not None and self._clock() - found.since <= SESSION_S else None

    def sessions(self) -> Sequence[Session]:
        """The sessions that are valid, the oldest first."""
        return [each for each in self._sessions.values() if self._clock() - each.since <= SESSION_S]

    def revoke(self, id_: str) -> bool:
        """End a session; return whether there was one with this id."""
        left = [each for each in self.sessions() if each.id != id_]
        was_there = len(left) < len(self.sessions())
        self._keep(left)
        return was_there

    def _keep(self, sessions: Sequence[Session]) -> None:
        self._sessions = {each.digest: each for each in sessions}
        text = json.dumps([asdict(each) for each in sessions])
        beside = self._file.with_name(f"{self._file.name}.new")
        with suppress(OSError):  # a full disk: they are valid until this server ends
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with open(beside, "w", encoding="utf-8", opener=_private) as file:
                file.write(text)
            beside.replace(self._file)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "replace")).hexdigest()


def _read(file: Path) -> dict[str, Session]:
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        sessions = [Session(str(r["id"]), r["role"], float(r["since"]), str(r["digest"])) for r in rows]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FleetError(f"{file} can't be read: {error}", hint="remove it; browsers then need a new link") from error
    return {each.digest: each for each in sessions if each.role in get_args(Role)}
