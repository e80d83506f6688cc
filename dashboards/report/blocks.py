"""What a report is made of, in any format. All text is untrusted, except for titles, labels and column heads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Point = tuple[float, float]
"""Seconds, and a value."""


@dataclass(frozen=True, slots=True)
class Code:
    """Something to type or to search for."""

    text: str


Cell = str | Code


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str
    quoted: bool = False
    """Whether a person or a model wrote it."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The most important numbers: label, value and note."""

    numbers: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: frozenset[int] = frozenset()
    """The columns that are aligned at the right."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time. A value holds until the next one."""

    title: str
    summary: str
    """What there is to see, in a sentence for readers who can't see it."""
    lines: Mapping[str, Sequence[Point]]
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
    summary: str
    bars: Sequence[Bar]
    seconds: float
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """Bars one after another in one row."""

    label: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Lanes:
    """Rows of bars over time."""

    title: str
    summary: str
    lanes: Sequence[Lane]
    seconds: float
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    label: str
    tone: str
    """`good`, `bad`, `open`, `busy` or `rest`."""
    needs: Sequence[str]
    """The labels of the nodes that it follows."""
    status: str = ""
    note: str = ""
    """What stands beside its label."""
    link: str = ""
    """The page that it leads to; none in a report, which is one file."""


@dataclass(frozen=True, slots=True)
class Graph:
    """What follows what, in columns: a node follows only nodes of earlier ones."""

    title: str
    summary: str
    columns: Sequence[Sequence[Node]]
    tallies: Sequence[tuple[str, Mapping[str, int]]] = ()
    """Where there are too many nodes to draw: a label and the number of nodes of each tone, for some columns each."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it went, at one glance."""

    tone: str
    """`good`, `bad`, `busy` or `open`: a person is needed."""
    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands to type, each with what it does."""

    commands: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Log:
    """Lines of text, folded below a title."""

    title: str
    lines: Sequence[str]


Block = Paragraph | Numbers | Table | Chart | Bars | Lanes | Graph | Commands | Log


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
    verdict: Verdict | None = None
