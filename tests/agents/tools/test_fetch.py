"""What the manager asks of the network for a worker: the list decides, and a name can't lead behind it."""

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from agents.tools.fetch import LARGEST, TIME_S, Fetch, FetchError, fetch, is_public
from agents.tools.tool import ToolInputError, ToolOptions, host_problem
from tests.agents.conftest import FolderWorkspace

pytestmark = pytest.mark.anyio


@dataclass
class Site:
    """A host on loopback, and what it was asked."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: dict[str, Callable[[], web.Response]] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        self.headers.append(dict(request.headers))
        return self.answers.get(request.path, lambda: web.Response(status=404, text="not here"))()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    app = web.Application()
    app.router.add_get("/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


async def refusal(url: str, *hosts: str, time_s: float = TIME_S, resolver: AbstractResolver | None = None) -> str:
    with pytest.raises(FetchError) as caught:
        await fetch(url, hosts, time_s=time_s, resolver=resolver)
    return str(caught.value)


@dataclass
class Names(AbstractResolver):
    """Looks every name up as these addresses."""

    addresses: Sequence[str]

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.addresses
        ]

    async def close(self) -> None:
        pass


async def test_an_answer_comes_as_it_is(site: Site) -> None:
    site.answers["/a"] = lambda: web.Response(body=b"\x00\xff", content_type="application/x")
    answer = await fetch(f"{site.url}/a?b=c", (site.host,))
    assert (answer.status, answer.kind, answer.body) == (200, "application/x", b"\x00\xff")
    assert site.asked == ["/a?b=c"]
    assert site.headers[0].keys() <= {"Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"}


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.example/x",
        "http://docs.example.org.evil.example/x",
        "http://evildocs.example.org/x",
        "http://docs.example.org:8080/x",
        "http://example.org/x",
        "http://127.0.0.1/x",
        "http://[::1]/x",
        "http://2130706433/x",
        "http://0x7f.1/x",
        "http://169.254.169.254/latest/meta-data",
    ],
)
async def test_who_is_not_listed_is_not_asked(url: str) -> None:
    assert "is not among the allowed hosts" in await refusal(url, "docs.example.org", "*.docs.example.org")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://docs.example.org/x",
        "http://docs.example.org@evil.example/",
        "http://evil.example\\@docs.example.org/",
        "http://docs.example.org\n.evil.example/",
        "http://docs.example.org/a b",
        "http://docs.example.org/\r\nHost: evil",
        "http://dоcs.example.org/",  # noqa: RUF001 - one letter is Cyrillic
        "http://docs.example.org%2f@evil.example/",
        "//docs.example.org/",
        "docs.example.org",
        "",
    ],
)
async def test_an_ambiguous_address_is_refused(url: str) -> None:
    assert "is not a supported URL" in await refusal(url, "docs.example.org", "evil.example")


@pytest.mark.parametrize("to", ["http://evil.example/", "//evil.example/", "file:///etc/passwd", "http://127.0.0.1:1/"])
async def test_a_redirect_to_an_unlisted_host_is_refused(site: Site, to: str) -> None:
    site.answers["/r"] = lambda: web.Response(status=302, headers={"location": to})
    result = await refusal(f"{site.url}/r", site.host)
    assert "is not among the allowed hosts" in result or "is not a supported URL" in result


async def test_redirects_are_followed_within_the_list_but_not_for_ever(site: Site) -> None:
    site.answers["/r"] = lambda: web.Response(status=302, headers={"location": "/a"})
    site.answers["/a"] = lambda: web.Response(text="there")
    assert (await fetch(f"{site.url}/r", (site.host,))).body == b"there"
    site.answers["/o"] = lambda: web.Response(status=307, headers={"location": "/o"})
    assert "more than 5 redirects" in await refusal(f"{site.url}/o", site.host)
    assert len(site.asked) == 2 + 6


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1"])
async def test_a_listed_name_that_leads_inside_is_not_asked(site: Site, address: str) -> None:
    host = f"docs.example.org:{site.port}"
    names = Names(["93.184.215.14", address])
    assert "resolves to a private address" in await refusal(f"http://{host}/", host, resolver=names)
    assert site.asked == []


async def test_this_machine_is_asked_where_it_is_listed(site: Site) -> None:
    site.answers["/a"] = lambda: web.Response(text="here")
    entry = f"localhost:{site.port}"
    assert (await fetch(f"http://{entry}/a", (entry,))).body == b"here"


async def test_size_and_time_are_bounded(site: Site) -> None:
    site.answers["/big"] = lambda: web.Response(body=bytes(LARGEST + 1))
    assert f"is larger than {LARGEST} bytes" in await refusal(f"{site.url}/big", site.host)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        assert "timeout" in await refusal(f"http://{host}/", host, time_s=0.2)


async def test_proxies_of_the_environment_are_not_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    site.answers["/a"] = lambda: web.Response(text="here")
    assert (await fetch(f"{site.url}/a", (site.host,))).status == 200


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "93.184.215.14"])
def test_the_open_network_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",  # noqa: S104 - nothing listens
        "100.64.0.1",
        "192.168.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "fe80::1%eth0",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "x",
    ],
)
def test_everything_else_is_not(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [((), "is missing"), (("http://x",), "'http://x' is not a host"), (("a.b", "*"), "'*' is not a host")],
)
def test_an_unusable_list_of_hosts_is_an_error(hosts: tuple[str, ...], message: str) -> None:
    assert message in (host_problem(hosts) or "")


# ---- the tool --------------------------------------------------------------------------------------------------------


async def test_the_tool_writes_the_response_to_a_file_and_shows_its_beginning(
    site: Site, workspace: FolderWorkspace
) -> None:
    site.answers["/a"] = lambda: web.Response(text="hello " * 2000)
    result = await Fetch(workspace, ToolOptions(5, 1000, hosts=(site.host,))).run(
        {"url": f"{site.url}/a", "path": "notes/a.txt"}
    )
    assert (workspace.folder / "notes/a.txt").read_text() == "hello " * 2000
    assert "status 200, text/plain, 12000 bytes, written to notes/a.txt" in result.text
    assert len(result.text) < 5000


async def test_an_error_response_is_shown_and_not_written(site: Site, workspace: FolderWorkspace) -> None:
    tool = Fetch(workspace, ToolOptions(5, 1000, hosts=(site.host,)))
    result = await tool.run({"url": f"{site.url}/gone", "path": "a.txt"})
    assert result.is_error
    assert "status 404" in result.text
    assert "not here" in result.text
    assert (await tool.run({"url": "http://evil.example/", "path": "a.txt"})).is_error
    with pytest.raises(ToolInputError):
        await tool.run({"url": site.url})
    assert list(workspace.folder.iterdir()) == []
