"""A stage for each test, a repository on it, and a simulated model that serves whatever script it is given."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

from agents.simulated.script import Script, parse_script
from agents.simulated.server import serve
from tests.agents.models.clouds import Cloud, clouds
from tests.e2e.stage import Json, Stage
from tests.worktrees.conftest import make_repository

Serve = Callable[[Json], str]
"""From a script to the address of a model that plays it."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.kill_engines()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "work", {"README.md": "hello\n", ".gitignore": "*.log\n"})


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture
def model(portal: BlockingPortal) -> Iterator[Serve]:
    """Simulated models on loopback, until the test is over."""
    with served(portal) as start:
        yield start


@pytest.fixture
def cloud(portal: BlockingPortal) -> Callable[[Json], AbstractContextManager[Cloud]]:
    """Amazon's and Google's services on loopback, around a simulated model."""
    return lambda script: portal.wrap_async_context_manager(clouds(script))


@contextmanager
def served(portal: BlockingPortal) -> Iterator[Serve]:
    """Simulated models on loopback, as long as the block lasts."""
    scopes: list[anyio.CancelScope] = []

    async def play(script: Script, *, task_status: TaskStatus[tuple[str, anyio.CancelScope]]) -> None:
        with anyio.CancelScope() as scope:
            await serve(script, on_ready=lambda url: task_status.started((url, scope)))

    names = itertools.count(1)

    def start(script: Json) -> str:
        parsed = parse_script(script)
        url: str
        _, (url, scope) = portal.start_task(play, parsed, name=f"model {next(names)}")
        scopes.append(scope)
        return url

    yield start
    for scope in scopes:
        portal.call(scope.cancel)
