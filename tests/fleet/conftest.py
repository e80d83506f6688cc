"""What the tests of the engine share."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried again at once."""
    monkeypatch.setattr("fleet.engine.errors.internal_errors.TRY_AGAIN_S", 0.0)
