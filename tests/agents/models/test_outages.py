"""When failing calls are an outage, and when they are not."""

from random import Random

import anyio
import pytest

from agents.models.answer import CallFault
from agents.models.service import RetryPolicy, Service
from tests.agents.conftest import FakeMeter
from tests.agents.timeless import TIMELESS

pytestmark = pytest.mark.anyio
PATIENCE = RetryPolicy(retries=4, backoff_first_s=1, backoff_cap_s=60, retry_after_cap_s=60, pause_s=2)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return TIMELESS


async def test_answers_from_before_an_outage_do_not_hide_it() -> None:
    """They begin one by one while every new call fails; without others, a caller's own tries would be used up."""
    service, meter = Service(PATIENCE, Random(0)), FakeMeter()  # noqa: S311 - jitter needs no secrecy
    early = [await service.acquire("m", meter) for _ in range(3)]
    concerns_all = []
    for permit in early:
        await anyio.sleep(0.1)
        new = await service.acquire("m", meter)
        assert new is not None
        assert permit is not None
        concerns_all.append(service.failed(new, CallFault("outage", "HTTP 529", status=529)))
        service.begun(permit, {})
    assert concerns_all == [False, False, True]
