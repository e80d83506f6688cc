"""What every tool is: a declaration for the model, and a doing. Arguments come from a model and are parsed first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from agents.models.answer import Block
from fleet.core.plan import Written
from fleet.core.planfile import parse

Model = TypeVar("Model", bound=BaseModel)
End_co = TypeVar("End_co", covariant=True)


class Arguments(Written):
    """The input of a tool. Unknown keys are errors."""


class BadInput(Exception):  # noqa: N818 - the model's mistake, answered in the conversation
    """The input is none for this tool; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool answers. A failing command is an answer like any other."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Ended(Generic[End_co]):
    """The conversation is over, with this result."""

    value: End_co


class Tool(Protocol[End_co]):
    """One thing a model may do. Raises `BadInput`, and `DeskError` where a file can't be had."""

    @property
    def name(self) -> str: ...

    @property
    def declaration(self) -> Block:
        """What the model is told of it."""
        ...

    def reads_only(self, raw: Mapping[str, Any]) -> bool:
        """Whether a call with this input changes nothing, so that it may run beside others."""
        ...

    async def run(self, raw: Mapping[str, Any]) -> "Said | Ended[End_co]": ...


def arguments(model: type[Model], raw: Mapping[str, Any]) -> Model:
    """`raw` as a `model`. Raises `BadInput` with every problem."""
    parsed = parse(model, dict(raw), at="")
    if isinstance(parsed, model):
        return parsed
    problems = parsed if isinstance(parsed, tuple) else ()
    raise BadInput("The input does not fit the tool:\n" + "\n".join(f"- {problem}" for problem in problems))
