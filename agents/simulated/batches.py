"""Batches of requests: each is answered as a call would be, at half of the price, once the script says so."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from agents.simulated.rules.refusal import RequestError

MOST_REQUESTS = 100_000
LONGEST_ID = 64


@dataclass(slots=True)
class Batch:
    """One batch: what it answers, and how often it is still said to be worked on."""

    id: str
    created: datetime
    results: list[dict[str, Any]]
    asks_left: int
    dollars: dict[str, float] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        return self.asks_left <= 0

    def document(self) -> dict[str, Any]:
        """What the service says of it."""
        kinds = [result["result"]["type"] for result in self.results]
        done = {kind: kinds.count(kind) for kind in ("succeeded", "errored", "canceled", "expired")}
        counts = {"processing": 0, **done} if self.has_ended else {"processing": len(kinds), **dict.fromkeys(done, 0)}
        stamp, ended = self.created.isoformat(), self.has_ended
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": counts,
            "created_at": stamp,
            "ended_at": stamp if ended else None,
            "expires_at": (self.created + timedelta(days=1)).isoformat(),
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"https://elsewhere.invalid/v1/messages/batches/{self.id}/results" if ended else None,
        }

    def lines(self) -> bytes:
        return b"".join(json.dumps(result).encode() + b"\n" for result in self.results)


class BatchDesk:
    """The batches of one service."""

    def __init__(self, asks: int) -> None:
        self._asks = asks
        self._batches: dict[str, Batch] = {}
        self._numbers = itertools.count(1)

    def take(self, data: object, answer: Callable[[Any], dict[str, Any]]) -> Batch:
        """Answer all requests of a new batch. Raises `RequestError` for one that is none."""
        requests = data.get("requests") if isinstance(data, dict) else None
        if not isinstance(requests, list) or not 0 < len(requests) <= MOST_REQUESTS:
            raise RequestError("requests: Field required")
        ids = [each.get("custom_id") if isinstance(each, dict) else None for each in requests]
        if not all(isinstance(id_, str) and 0 < len(id_) <= LONGEST_ID for id_ in ids) or len(set(ids)) < len(ids):
            raise RequestError("requests: custom_id: must be unique, with 1 to 64 characters")
        if any("stream" in each.get("params", {}) for each in requests):
            raise RequestError("requests.0.params.stream: streaming is not supported in batches")
        results = [{"custom_id": each["custom_id"], "result": answer(each.get("params"))} for each in requests]
        batch = Batch(f"msgbatch_simulated_{next(self._numbers):06d}", datetime.now(UTC), results, self._asks)
        self._batches[batch.id] = batch
        return batch

    def find(self, id_: str) -> Batch:
        """Raises `RequestError`."""
        if id_ not in self._batches:
            raise RequestError(f"batch {id_!r} not found", 404)
        return self._batches[id_]

    def look(self, id_: str) -> Batch:
        """The same, as someone who asks whether it has ended. Raises `RequestError`."""
        batch = self.find(id_)
        batch.asks_left -= 1
        return batch

    def latest(self) -> list[Batch]:
        return list(reversed(self._batches.values()))

    def __len__(self) -> int:
        return len(self._batches)
