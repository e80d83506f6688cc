"""Links that work once, and sessions that outlive the server but not their end."""

import stat
from pathlib import Path

import pytest

from dashboards.web.access import LINK_S, MOST_SESSIONS, SESSION_S, WebAccess
from fleet.errors import FleetError


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(tmp_path: Path, clock: Clock) -> WebAccess:
    return WebAccess(tmp_path / "state" / "sessions.json", clock)


def signed_in(access: WebAccess) -> str:
    started = access.start_session(access.new_link("decide", "/runs/r"))
    assert started is not None
    assert started[1] == "/runs/r"
    return started[0]


def test_a_link_works_once(access: WebAccess) -> None:
    token = access.new_link("read")
    started = access.start_session(token)
    assert started is not None
    session = access.session(started[0])
    assert session is not None
    assert session.role == "read"
    assert access.start_session(token) is None
    assert access.start_session("") is None
    assert access.session("") is None


def test_a_link_is_too_old_after_a_while(access: WebAccess, clock: Clock) -> None:
    token = access.new_link("decide")
    clock.now += LINK_S + 1
    assert access.start_session(token) is None


def test_a_session_survives_a_restart_and_the_file_lets_nobody_in(
    access: WebAccess, clock: Clock, tmp_path: Path
) -> None:
    secret = signed_in(access)
    file = tmp_path / "state" / "sessions.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in file.read_text()
    again = WebAccess(file, clock)
    session = again.session(secret)
    assert session is not None
    assert again.session(session.digest) is None
    clock.now += SESSION_S + 1
    assert again.session(secret) is None
    assert list(again.sessions()) == []


def test_a_session_that_is_revoked_is_over_for_good(access: WebAccess, clock: Clock, tmp_path: Path) -> None:
    secret, other = signed_in(access), signed_in(access)
    session = access.session(secret)
    assert session is not None
    assert access.revoke(session.id)
    assert not access.revoke(session.id)
    assert access.session(secret) is None
    assert WebAccess(tmp_path / "state" / "sessions.json", clock).session(secret) is None
    assert access.session(other) is not None


def test_sessions_are_bounded(access: WebAccess) -> None:
    first = signed_in(access)
    *_, last = (signed_in(access) for _ in range(MOST_SESSIONS))
    assert len(access.sessions()) == MOST_SESSIONS
    assert access.session(first) is None
    assert access.session(last) is not None


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"id": "x"}]', "\0"])
def test_a_damaged_file_is_named(tmp_path: Path, clock: Clock, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(FleetError, match=r"s\.json can't be read"):
        WebAccess(tmp_path / "s.json", clock)


def test_a_role_that_nobody_knows_opens_nothing(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "s.json").write_text('[{"id": "x", "role": "root", "since": 1000, "digest": "d"}]')
    assert list(WebAccess(tmp_path / "s.json", clock).sessions()) == []


def test_what_one_server_starts_or_ends_holds_for_all_of_them(tmp_path: Path, clock: Clock) -> None:
    one, other = WebAccess(tmp_path / "s.json", clock), WebAccess(tmp_path / "s.json", clock)
    first, second = signed_in(one), signed_in(other)
    assert [session.role for session in one.sessions()] == ["decide", "decide"]
    session = other.session(first)
    assert session is not None
    assert other.revoke(session.id)
    assert one.session(first) is None
    assert one.session(second) is not None
    (tmp_path / "s.json").write_text("{")  # damaged: nobody gets in, and nobody is sent out
    assert one.session(second) is not None
    (tmp_path / "s.json").unlink()
    assert one.session(second) is None


def test_a_scraper_has_a_secret_without_an_end(access: WebAccess, clock: Clock) -> None:
    secret = access.new_secret("scrape")
    clock.now += 10 * SESSION_S
    session = access.session(secret)
    assert session is not None
    assert session.role == "scrape"
    assert access.revoke(session.id)
    assert access.session(secret) is None
