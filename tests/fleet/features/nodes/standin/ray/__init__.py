"""A stand-in for Ray, as much of it as is used: actors are objects in this process, in a loop of their own.

The folder of `RAY_STANDIN` scripts it: `hosts` are its machines, an identifier a line; `unavailable` is how many
calls, once done, are reported as perhaps not done; where `dead` is, actors are. What it is asked for goes to `asked`.
"""

import asyncio
import os
import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.exceptions import ActorDiedError, ActorUnavailableError, AsyncioActorExit

_loop = asyncio.new_event_loop()
_actors: dict[str, "_Handle"] = {}
_self: ContextVar["_Handle"] = ContextVar("_self")
PROCESSORS = 2


def _folder() -> Path:
    return Path(os.environ["RAY_STANDIN"])


def note(text: str) -> None:
    with (_folder() / "asked").open("a") as file:
        file.write(f"{text}\n")


@dataclass
class _Reference:
    future: "Future[Any]"

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self.future).__await__()


@dataclass
class _Handle:
    """An actor, and how its methods are called."""

    name: str = ""
    actor: Any = field(default=None, repr=False)

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *args: self._call(name, args))

    def _call(self, name: str, args: tuple[object, ...]) -> _Reference:
        return _Reference(asyncio.run_coroutine_threadsafe(self._run(name, args), _loop))

    async def _run(self, name: str, args: tuple[object, ...]) -> Any:
        if (_folder() / "dead").exists():
            raise ActorDiedError("The actor died because its node has died.\nMore lines.")
        try:
            result = await getattr(self.actor, name)(*args)
        except AsyncioActorExit:
            del _actors[self.name]
            note("actor left")
            return None
        unavailable = _folder() / "unavailable"
        if name != "leave" and unavailable.exists() and (left := int(unavailable.read_text())):
            unavailable.write_text(str(left - 1))
            raise ActorUnavailableError("The actor is temporarily unavailable")
        return result


def init(**options: Any) -> None:
    if options["address"] != "auto":
        raise ConnectionError(f"Could not find a cluster at {options['address']}")
    threading.Thread(target=_loop.run_forever, daemon=True).start()


def shutdown() -> None:
    note("shutdown")


def nodes() -> list[dict[str, Any]]:
    listed = (_folder() / "hosts").read_text().split()
    return [{"NodeID": id_, "Alive": True, "Resources": {"CPU": float(PROCESSORS)}} for id_ in listed]


def remote(cls: type) -> Any:
    def options(**given: Any) -> Any:
        assert (given["max_restarts"], given["max_task_retries"]) == (0, 0)
        assert not {"runtime_env", "memory"} & set(given)

        def make(*args: object) -> _Handle:
            if given["name"] not in _actors:
                handle = _actors[given["name"]] = _Handle(given["name"])
                _self.set(handle)
                handle.actor = cls(*args)
            return _actors[given["name"]]

        return SimpleNamespace(remote=make)

    return SimpleNamespace(options=options)


def cancel(reference: _Reference) -> None:
    reference.future.cancel()


def get_runtime_context() -> Any:
    return SimpleNamespace(current_actor=_self.get())


def _exit_actor() -> None:
    raise AsyncioActorExit


actor: Any = SimpleNamespace(exit_actor=_exit_actor)
