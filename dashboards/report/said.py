"""What agents said while they worked, in a report: the last summaries of each one's thinking. They are models' text."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dashboards.report.blocks import Block, Log, Paragraph
from dashboards.text.formats import counted, duration
from dashboards.text.safe import safe
from fleet.core.base.ids import SubtaskId
from fleet.core.state import facts as f
from fleet.core.state.state import RunState

MOST_AGENTS = 200  # conversations in a report
LAST = 6  # sayings of each that are kept
TEXT = 300  # characters of one


@dataclass(frozen=True, slots=True)
class Saying:
    """What an agent said, and when."""

    at_s: float
    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class Talk:
    """The last sayings of one agent: an attempt at a subtask, or a call of a planner."""

    subtask: SubtaskId | None
    """Its subtask, or the area whose planner it is; None: the run's own planner."""
    number: int
    """Of the attempt, or of the planner's call."""
    role: f.Role
    model: str
    sayings: Sequence[Saying]
    earlier: int
    """How many more it said before."""


@dataclass(slots=True)
class _Heard:
    model: str
    count: int = 0
    sayings: deque[Saying] = field(default_factory=lambda: deque(maxlen=LAST))


@dataclass(slots=True)
class Talks:
    """Collects what is said. Of very many agents, the first ones are kept."""

    _heard: dict[tuple[f.Role, SubtaskId | None, int], _Heard] = field(default_factory=dict)
    left_out: set[tuple[f.Role, SubtaskId | None, int]] = field(default_factory=set)

    def take(self, fact: f.Fact, state: RunState) -> None:
        if not isinstance(fact, f.ModelCalled) or not fact.said.strip():
            return
        key = (fact.role, fact.subtask or fact.area, fact.attempt or fact.call or 0)
        if key not in self._heard:
            if len(self._heard) >= MOST_AGENTS:
                self.left_out.add(key)
                return
            self._heard[key] = _Heard(fact.model)
        heard = self._heard[key]
        if heard.sayings and heard.sayings[-1].text == fact.said:
            return
        heard.count += 1
        heard.sayings.append(Saying(state.seconds(fact.at), fact.turn, fact.said))

    def talks(self) -> list[Talk]:
        return [
            Talk(subtask, number, role, heard.model, tuple(heard.sayings), heard.count - len(heard.sayings))
            for (role, subtask, number), heard in self._heard.items()
        ]


def talk_blocks(talks: Sequence[Talk], left_out: int) -> Iterator[Block]:
    if not talks:
        return
    yield Paragraph(
        "The last summaries of what each agent was thinking, in its model's own words; no verdict rests on them."
    )
    for talk in talks:
        yield Log(_title(talk), [*_earlier(talk), *map(_line, talk.sayings)])
    if left_out:
        yield Paragraph(
            f"{counted(left_out, 'more agent')} said something; `fleet logs SUBTASK` prints a conversation."
        )


def _title(talk: Talk) -> str:
    name = safe(talk.subtask) if talk.subtask is not None else "the run"
    attempt = f"attempt {talk.number}"
    what = {"worker": attempt, "resolver": attempt, "reviewer": f"review of {attempt}"}.get(
        talk.role, f"planner, call {talk.number}"
    )
    return f"{name}: {what}, {safe(talk.model, limit=80)}"


def _earlier(talk: Talk) -> Iterator[str]:
    if talk.earlier:
        yield f"… {talk.earlier} before"


def _line(saying: Saying) -> str:
    return f"{duration(saying.at_s):>12}  {safe(saying.text, limit=TEXT)}"
