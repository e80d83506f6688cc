"""Raises in any function of the engine, the core and the adapters: which there are, which a run calls, and how to.

A function's code is replaced, so that every name it goes by, in every module, leads to the exception.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FrameType, FunctionType
from typing import Any, Literal

import anyio

from fleet.core.state.state import RunState
from fleet.engine.internal_errors import Advice
from tests.fleet.fakes import FakeFleet

Mode = Literal["once", "always", "about"]
"""At the first call, at every one, or at each that is given one subtask."""
PACKAGES = ("fleet.engine.", "fleet.core.", "tests.fleet.fakes", "tests.fleet.eyes")
HARNESS = {"FakeFleet", "FakeMemory", "RealClock"}
"""Classes of the fakes that stand for no adapter: the test's own, the journal and the clock."""


class InjectedError(Exception):
    """The exception that is raised."""


def functions() -> dict[CodeType, FunctionType]:
    """Every function and method of the engine, the core and the adapters, by its code."""
    found: dict[CodeType, FunctionType] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGES):
            for value in list(vars(module).values()):
                _collect(value, name, found)
    return found


def _collect(value: object, module: str, found: dict[CodeType, FunctionType]) -> None:
    value = getattr(value, "fget", None) or getattr(value, "__func__", None) or getattr(value, "__wrapped__", value)
    if isinstance(value, FunctionType) and value.__module__ == module and not value.__code__.co_freevars:
        if not value.__name__.startswith("__") or value.__name__ == "__call__":
            found[value.__code__] = value
    elif isinstance(value, type) and value.__module__ == module and value.__name__ not in HARNESS:
        for member in list(vars(value).values()):  # a look at a deferred validator builds it
            _collect(member, module, found)


def name_of(function: FunctionType) -> str:
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"


@dataclass(frozen=True, slots=True)
class Place:
    """A function that a run calls."""

    name: str
    function: FunctionType
    is_advice: bool
    """Whether it is only called for optional steps."""

    @property
    def is_step(self) -> bool:
        """Whether it is of the engine or of an adapter, and not a pure function of the core."""
        return not self.function.__module__.startswith("fleet.core.")


def called(make: Callable[[], FakeFleet]) -> list[Place]:
    """The functions that a run calls, by name."""
    known, met, needed = functions(), dict[str, FunctionType](), set[str]()
    advice = {Advice.take.__code__, Advice.take_now.__code__}

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (function := known.get(frame.f_code)) is not None:
            name = name_of(function)
            met[name] = function
            above = frame.f_back
            while above is not None and above.f_code not in advice:
                above = above.f_back
            if above is None:
                needed.add(name)

    fleet = make()

    async def watched() -> RunState:
        sys.setprofile(watch)
        try:
            return await fleet.run()
        finally:
            sys.setprofile(None)

    state = anyio.run(watched)
    if state.ending != "landed":
        raise AssertionError(f"a run without exceptions ended as {state.ending}: {state.ending_why}")
    return [Place(name, met[name], name not in needed) for name in sorted(met)]


@contextmanager
def raising(function: FunctionType, mode: Mode, about: str = "") -> Iterator[tuple[list[str], Callable[[], None]]]:
    """Make the function raise, depending on the mode. Yields each exception."""
    code, defaults, keyword_defaults = function.__code__, function.__defaults__, function.__kwdefaults__
    real = FunctionType(code, function.__globals__, function.__name__, defaults)
    real.__kwdefaults__ = keyword_defaults
    raised: list[str] = []
    begun: list[bool] = []

    def meet(*args: Any, **kwargs: Any) -> Any:
        meant = _names(about, (*args, *kwargs.values())) if mode == "about" else mode == "always" or not raised
        if begun and meant:
            raised.append(name_of(function))
            raise InjectedError(f"injected into {name_of(function)}")
        return real(*args, **kwargs)

    MEET[0] = meet
    function.__defaults__ = function.__kwdefaults__ = None
    function.__code__ = _stub(code.co_flags)
    try:
        yield raised, lambda: begun.append(True)
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, keyword_defaults


def _names(subtask: str, given: Iterable[object]) -> bool:
    """Whether what a function is given is a subtask, or something of it."""
    return any(subtask in (each, getattr(each, "id", None), getattr(each, "subtask", None)) for each in given)


MEET: list[Callable[..., Any]] = [lambda: None]


def _stub(flags: int) -> CodeType:
    """Return the code of a function of the same kind that consults a hook. It runs with another module's globals."""
    if flags & CO_COROUTINE:
        return _coroutine.__code__
    if flags & CO_GENERATOR:
        return _generator.__code__
    return _async_generator.__code__ if flags & CO_ASYNC_GENERATOR else _plain.__code__


def _plain(*args: Any, **kwargs: Any) -> Any:
    from chaos.raising import MEET  # noqa: PLC0415

    return MEET[0](*args, **kwargs)


async def _coroutine(*args: Any, **kwargs: Any) -> Any:
    from chaos.raising import MEET  # noqa: PLC0415

    return await MEET[0](*args, **kwargs)


def _generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
    from chaos.raising import MEET  # noqa: PLC0415

    yield from MEET[0](*args, **kwargs)


async def _async_generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
    from chaos.raising import MEET  # noqa: PLC0415

    async for each in MEET[0](*args, **kwargs):
        yield each
