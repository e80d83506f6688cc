"""Who is answered: a list of hosts, a session, and no change that another page could cause."""

import json
from io import BytesIO
from pathlib import Path

import pytest

from dashboards.web.access import HEADERS
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.web.site import DECIDES, client, site, story

PATHS = (
    "/",
    "/inbox",
    "/access",
    "/runs/r",
    "/runs/r/subtasks",
    "/runs/r/plan",
    "/live?page=/",
    "/static/fleet.js",
    "/no",
)


def feed() -> MemoryFeed:
    return MemoryFeed(story().facts)


async def test_without_a_session_nothing_is_shown_and_nothing_is_done(tmp_path: Path) -> None:
    run = feed()
    async with site(tmp_path, run) as server, client(server) as someone:
        someone.cookies = {}
        for path in PATHS:
            status, _, text = await someone.get(path)
            assert (path, status) == (path, 401)
            assert "schema" not in text
        assert (await someone.decide("/runs/r/requests/paused"))[0] == 401
        someone.cookies = {f"fleet-{server.address.port}": "guess"}
        assert (await someone.get("/"))[0] == 401
    assert run.requests == []


async def test_a_name_that_was_allowed_is_answered(tmp_path: Path) -> None:
    async with site(tmp_path, feed(), hosts=("fleet.example",)) as server, client(server) as someone:
        assert (await someone.get("/", {"Host": "fleet.example"}))[0] == 200
        headers = {"Host": "fleet.example", "Origin": "https://fleet.example"}
        assert (await someone.decide("/runs/r/requests/paused", headers))[0] == 200
        for host in ("evil.example", "fleet.example.evil.example", "10.0.0.1"):
            assert (await someone.get("/", {"Host": host}))[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": ""},
        {"X-Fleet-Request": "0"},
        {"X-Fleet-Request": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
async def test_what_another_page_could_send_changes_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    run = feed()
    async with site(tmp_path, run) as server, client(server) as someone:
        for path in ("/runs/r/requests/paused", "/runs/r/subtasks/docs/comments", "/access/link", "/access/revoke"):
            status, _, _ = await someone.ask("POST", path, {**DECIDES, **headers}, data=b"{}")
            assert status in {403, 415}
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            assert (await someone.ask(method, "/runs/r/requests/paused", DECIDES, data=b"{}"))[0] == 405
        assert (await someone.get("/runs/r/requests/paused"))[0] == 404
    assert run.requests == []
    assert len(server.access.sessions()) == 1


async def test_a_browser_that_may_only_read_decides_nothing(tmp_path: Path) -> None:
    run = feed()
    async with site(tmp_path, run) as server, client(server, "read") as reader:
        status, _, page = await reader.get("/runs/r")
        assert status == 200
        assert "<form" not in page
        for path in ("/runs/r/requests/paused", "/runs/r/requests/resume", "/access/link", "/access/revoke"):
            assert (await reader.decide(path))[0] == 403
    assert run.requests == []
    assert run.resume_count == 0


async def test_a_server_that_only_reads_has_no_routes_to_decide(tmp_path: Path) -> None:
    run = feed()
    async with site(tmp_path, run, read_only=True) as server, client(server) as someone:
        assert (await someone.decide("/runs/r/requests/paused"))[0] in {404, 405}
        assert '<form class="act' not in (await someone.get("/runs/r"))[2]
    assert run.requests == []


async def test_every_answer_carries_the_policy(tmp_path: Path) -> None:
    async with site(tmp_path, feed()) as server, client(server) as someone:
        secret = next(iter(someone.cookies.values()))
        for path in (*PATHS[:6], "/static/style.css", "/runs/r/report", "/no", "/runs/none"):
            status, headers, text = await someone.get(path)
            assert status in {200, 404}
            for name, value in HEADERS.items():
                assert headers[name] == value or (name, path) == ("Content-Security-Policy", "/runs/r/report")
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert secret not in text
            assert "Set-Cookie" not in headers


async def test_a_cookie_is_for_this_server_and_no_script_reads_it(tmp_path: Path) -> None:
    async with site(tmp_path, feed()) as server, client(server) as someone:
        token = server.link("decide").partition("token=")[2]
        _, headers, _ = await someone.get(f"/sign-in?token={token}")
        cookie = headers["Set-Cookie"]
        assert cookie.startswith(f"fleet-{server.address.port}=")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
        assert token not in cookie
        assert (await someone.get(f"/sign-in?token={token}"))[0] == 401  # a link works once


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/site.py", "/static/"]
)
async def test_only_files_for_pages_are_served(tmp_path: Path, path: str) -> None:
    async with site(tmp_path, feed()) as server, client(server) as someone:
        status, _, text = await someone.get(path)
        assert status == 404
        assert "import" not in text


async def test_a_body_without_end_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, feed()) as server, client(server) as someone:
        status, _, _ = await someone.ask("POST", "/runs/r/requests/plan", DECIDES, data=BytesIO(b" " * 5_000_000))
        assert status == 413


async def test_a_link_leads_to_its_page_and_a_preview_does_not_use_it_up(tmp_path: Path) -> None:
    async with site(tmp_path, feed()) as server, client(server) as someone:
        someone.cookies = {}
        path = server.link("decide", "/runs/r").partition(str(server.address))[2]
        status, headers, _ = await someone.ask("HEAD", path)
        assert (status, "Set-Cookie" in headers) == (200, False)
        status, headers, text = await someone.get(path)
        assert (status, "Set-Cookie" in headers) == (200, True)
        assert 'content="0;url=/runs/r"' in text
        assert path.partition("=")[2] not in text


async def test_a_scraper_gets_metrics_with_its_token_and_nothing_else(tmp_path: Path) -> None:
    async with site(tmp_path, feed()) as server, client(server) as mine, client(server) as scraper:
        token = json.loads((await mine.decide("/access/token"))[1])["message"]
        scraper.cookies = {}
        bearer = {"Authorization": f"Bearer {token}", "Accept": "text/plain"}
        status, headers, text = await scraper.get("/metrics", bearer)
        assert (status, text) == (200, "fleet_runs 1 for text/plain")
        assert headers["Content-Type"] == "text/plain; version=1"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert (await mine.get("/metrics"))[0] == 200
        for refused in ({}, {"Authorization": "Bearer guess"}, {"Authorization": f"Basic {token}"}):
            assert (await scraper.get("/metrics", refused))[0] == 401
        for path in PATHS:
            assert (await scraper.get(path, bearer))[0] == 401
        scraper.cookies = {f"fleet-{server.address.port}": token}
        for path in PATHS:
            assert (await scraper.get(path))[0] == 403
        assert (await scraper.decide("/access/link"))[0] == 403
        assert "metrics only" in (await mine.get("/access"))[2]
        assert token not in (await mine.get("/access"))[2]
        (session,) = [each for each in server.access.sessions() if each.role == "scrape"]
        assert (await mine.decide("/access/revoke", id=session.id))[0] == 200
        scraper.cookies = {}
        assert (await scraper.get("/metrics", bearer))[0] == 401
