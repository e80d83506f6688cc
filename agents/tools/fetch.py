"""`fetch`: an answer of one of the listed hosts, into a file of the worktree. Asked by the manager, outside the box."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from agents.fetching import LARGEST, Fetched, Refused, fetch
from agents.models.answer import Block
from agents.text import capped, well_formed
from agents.tools.schema import strict_schema
from agents.tools.tool import Arguments, Said, arguments
from fleet.ports import Desk

_SHOWN = 4_000  # characters of what was fetched; the rest is in the file
_OK = range(200, 300)


class FetchArguments(Arguments):
    url: str = Field(min_length=1, max_length=2_000, description="The address: http(s)://host/path.")
    path: str = Field(min_length=1, description="The file of the worktree that the answer is written into.")


class Fetch:
    """Asks hosts that the operator listed."""

    name = "fetch"

    def __init__(self, desk: Desk, hosts: Sequence[str]) -> None:
        self._desk = desk
        self._hosts = tuple(hosts)

    @property
    def declaration(self) -> Block:
        return {
            "name": self.name,
            "description": (
                f"Asks for one address with HTTP GET and writes the answer into a file, at most {LARGEST} bytes. "
                "Redirects are followed. Only these hosts may be asked: " + ", ".join(self._hosts)
            ),
            "strict": True,
            "input_schema": strict_schema(FetchArguments),
        }

    def reads_only(self, raw: Mapping[str, Any]) -> bool:  # noqa: ARG002 - it writes a file
        return False

    async def run(self, raw: Mapping[str, Any]) -> Said:
        asked = arguments(FetchArguments, raw)
        try:
            answer = await fetch(asked.url, self._hosts)
        except Refused as refused:
            return Said(str(refused), is_error=True)
        if answer.status not in _OK:
            return Said(f"{_title(answer)}; nothing was written.\n{_beginning(answer)}", is_error=True)
        await self._desk.write(asked.path, answer.body)
        return Said(f"{_title(answer)}; written into {asked.path}. It begins:\n{_beginning(answer)}")


def _title(answer: Fetched) -> str:
    return f"{answer.url}: status {answer.status}, {answer.kind}, {len(answer.body)} bytes"


def _beginning(answer: Fetched) -> str:
    return capped(well_formed(answer.body[: 4 * _SHOWN].decode("utf-8", "replace")), _SHOWN)
