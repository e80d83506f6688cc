"""Requests that may wait, as batches: the service answers them within a day, for half of the price."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from agents.models.answer import Answer, CallFault, Request
from agents.models.client import Client

SKEW_S = 300.0  # how far the service's clock may differ from ours


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """A batch, as far as the service has come with it."""

    id: str
    requests: int
    sent_at: float
    has_ended: bool


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of a service."""

    client: Client

    async def send(self, requests: Mapping[str, Request]) -> str | CallFault:
        """Send requests by their ids, each of which no other request has: the batch's name."""
        sent = await self.client.send_batch(requests)
        return sent if isinstance(sent, CallFault) else str(sent.get("id", ""))

    async def status(self, batch: str) -> BatchStatus | CallFault:
        found = await self.client.batch(batch)
        return found if isinstance(found, CallFault) else _status(found)

    async def sent_since(self, since: float) -> list[BatchStatus] | CallFault:
        """The latest batches that were sent at this time or later."""
        listed = await self.client.latest_batches()
        if isinstance(listed, CallFault):
            return listed
        return [status for each in listed if (status := _status(each)).sent_at >= since - SKEW_S]

    async def results(self, batch: str) -> Mapping[str, Answer | CallFault] | CallFault:
        """The answers of a batch that has ended, by the ids of their requests."""
        return await self.client.batch_results(batch)


def _status(document: Mapping[str, object]) -> BatchStatus:
    counts = document.get("request_counts")
    numbers = [number for number in counts.values() if isinstance(number, int)] if isinstance(counts, dict) else []
    return BatchStatus(
        id=str(document.get("id", "")),
        requests=sum(numbers),
        sent_at=_time(document.get("created_at")),
        has_ended=document.get("processing_status") == "ended",
    )


def _time(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0
