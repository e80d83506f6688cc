"""What the tests of the engine share."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
