"""What a report is made of, whoever writes it down. All text in it is untrusted but for what is code of ours."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """Something to be typed or looked for, as it stands."""

    text: str


Cell = str | Code


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph; `quoted` where somebody else says it."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The figures that come first."""

    numbers: Sequence[Number]


@dataclass(frozen=True, slots=True)
class Table:
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: frozenset[int] = frozenset()
    """The columns that are lined up at the right."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: a value holds until the next."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time."""

    title: str
    says: str
    """What there is to see, in a sentence: for whoever can't."""
    lines: Sequence[Line]
    seconds: float
    dollars: bool = False
    marks: Sequence[float] = ()
    """When the run was resumed."""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    from_s: float
    to_s: float | None
    good: bool | None


@dataclass(frozen=True, slots=True)
class Bars:
    """Spans over time."""

    title: str
    says: str
    bars: Sequence[Bar]
    seconds: float
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Commands:
    """What to type, each with what it does."""

    commands: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Log:
    """Lines as they stand, folded away below a title."""

    title: str
    lines: Sequence[str]


Block = Words | Numbers | Table | Chart | Bars | Commands | Log


@dataclass(frozen=True, slots=True)
class Section:
    anchor: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    lead: Sequence[str]
    sections: Sequence[Section]
