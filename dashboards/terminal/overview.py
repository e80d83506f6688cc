"""One page that answers at a glance: what needs you, who is at work, what lands, what happened last."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dashboards.terminal.agents import COLUMNS, agents, cells
from dashboards.terminal.lines import Line, Page, Wish, clipped, head, heading, matches, row, shown, widths, wrapped
from dashboards.terminal.ports import Feed
from dashboards.terminal.watched import Event, Watched
from dashboards.terminal.words import clock_in
from fleet.core.approval import awaits_approval, revising, stopped_by, untouched, waiting
from fleet.core.budget import over_budget
from fleet.core.standing import counts
from fleet.core.state import RunState

LEAST = 3
WIDE = 150


@dataclass(frozen=True, slots=True)
class Need:
    """Something that only a person can do."""

    key: str
    text: str
    how: str


class Seen(Protocol):
    """What has to be known of a run besides its state."""

    @property
    def feed(self) -> Feed: ...

    @property
    def alive(self) -> bool: ...

    @property
    def loaded(self) -> bool: ...


def needs(watched: Seen, state: RunState, now: float) -> list[Need]:
    """What waits for the person, the most urgent first."""
    found: list[Need] = []
    if state.ended:
        return found
    if not watched.alive and watched.loaded:
        said = shown(watched.feed.last_words(), 200)
        found.append(Need("resume", "nobody works on this run" + (f": {said}" if said else ""), "R resumes it"))
    if awaits_approval(state) and not revising(state):
        found.append(Need("approve", _waits(state), "A approves, X rejects, E edits, C cancels"))
    for question in state.open_questions():
        about = f"{shown(question.about, 40)}: " if question.about else ""
        found.append(Need(f"q:{question.id}", f"{question.id} {about}{shown(question.text, 300)}", "Enter answers"))
    spent = over_budget(state, now)
    if spent is not None:
        found.append(Need("budget", shown(spent), "B raises it"))
    if state.paused:
        found.append(Need("paused", "paused: nothing new begins", "P goes on"))
    return found


def _waits(state: RunState) -> str:
    waits = waiting(state)
    if untouched(state) and len(waits) == len(state.plan.subtasks):
        return f"the plan waits for you: {len(waits)} subtask{'s' * (len(waits) != 1)}"
    first = shown(waits[0], 40) + f" ({'; '.join(map(shown, stopped_by(state, waits[0]))) or 'a person is to look'})"
    return f"waits for you: {first}{f' and {len(waits) - 1} more' if len(waits) > 1 else ''}"


def overview_page(watched: Watched, state: RunState, now: float, wish: Wish) -> Page:
    lines: list[tuple[str, Line]] = []
    asked = needs(watched, state, now)
    if asked:
        lines.append(("", (("NEEDS YOU  ", "warn"), (f"{len(asked)}", "warn"))))
        lines += [
            (need.key, ((f" ! {need.text}", "warn"), (f"  → {need.how}", "bold"))) for need in asked[: wish.height // 3]
        ]
        lines.append(("", ()))
    if state.ended:
        lines += [*_ending(state, wish.width), ("", ())]
    events = [event for event in watched.events if not event.routine and matches(wish.needle, event.text)]
    busy = agents(state, wish)
    if wish.width >= WIDE:
        return _side_by_side(state, now, wish, lines, events)
    room = max(2 * LEAST, wish.height - len(lines) - 5)
    crew = min(len(busy), max(LEAST, room * 3 // 5 if events else room))
    lines += _agents(state, now, wish, crew, wish.width)
    lines += [("", ()), ("", _landing(state, now)), ("", ())]
    lines += _events(state, events, max(LEAST, wish.height - len(lines) - 1))
    return Page(keys=[key for key, _ in lines], draw=lambda index, _: lines[index][1], empty="nothing yet")


def _side_by_side(
    state: RunState, now: float, wish: Wish, top: list[tuple[str, Line]], events: Sequence[Event]
) -> Page:
    """On a wide screen agents stand left, what happened right."""
    room = max(2 * LEAST, wish.height - len(top))
    left = wish.width * 3 // 5
    rows = _agents(state, now, wish, room - 4, left)
    rows += [("", ())] * (room - 2 - len(rows)) + [("", ()), ("", _landing(state, now))]
    other = _events(state, events, room - 1)
    lines = list(top)
    for place, (key, line) in enumerate(rows[:room]):
        beside = other[place][1] if place < len(other) else ()
        lines.append((key, (*clipped(line, left), (" │ ", "dim"), *beside)))
    return Page(keys=[key for key, _ in lines], draw=lambda index, _: lines[index][1], empty="nothing yet")


def _agents(state: RunState, now: float, wish: Wish, most: int, width: int) -> list[tuple[str, Line]]:
    busy = agents(state, wish)
    sizes = widths(COLUMNS, width)
    title = f"AGENTS {state.working()} of {state.policy.workers}"
    more = f"{len(busy) - most} more: press 2" if len(busy) > most else ""
    lines = [("", heading(title, more))]
    if busy:
        lines.append(("", head(COLUMNS, sizes)))
    else:
        lines.append(("", (("  nobody is at work", "dim"),)))
    for agent in busy[:most]:
        key = f"s:{agent.subtask.id}" if agent.subtask else "planner"
        lines.append((key, row(COLUMNS, sizes, cells(state, agent, now))))
    return lines


def _landing(state: RunState, now: float) -> Line:
    landing = state.landing
    parts = [f"{len(landing.queue)} wait", f"{len(landing.probes)} batches are tested"]
    if landing.suspects:
        parts.append(f"one of {len(landing.suspects)} is guilty of a red tree")
    where = counts(state, now)
    rest = [f"{where[name]} {name}" for name in ("ready", "waiting", "failed", "blocked") if where.get(name)]
    return (
        ("LANDING  ", "head"),
        (", ".join(parts), "bad" if landing.suspects else ""),
        (f"   PLAN  {', '.join(rest)}" if rest else "", "dim"),
    )


def _events(state: RunState, events: Sequence[Event], most: int) -> list[tuple[str, Line]]:
    lines: list[tuple[str, Line]] = [("", heading("LATEST", "of note, the newest first"))]
    newest = list(events)[-most:] if most > 0 else []
    return lines + [(event_key(state, event), event_line(state, event)) for event in reversed(newest)]


def event_key(state: RunState, event: Event) -> str:
    """Its own for each event, so that a cursor stays on it; behind the colon the subtask it leads to."""
    return f"e{event.number}:{event.about if event.about in state.subtasks else ''}"


def event_line(state: RunState, event: Event) -> Line:
    return ((f"{clock_in(state, event.at)}  ", "dim"), (event.text, event.tone))


def events_page(watched: Watched, state: RunState, wish: Wish) -> Page:
    """Everything that happened, the newest at the end."""
    events = list(watched.events)
    if wish.needle:
        events = [event for event in events if matches(wish.needle, event.text)]
    return Page(
        keys=[event_key(state, event) for event in events],
        draw=lambda index, _: event_line(state, events[index]),
        empty="nothing matches" if wish.needle else "nothing has happened yet",
        tail=True,
    )


def _ending(state: RunState, width: int) -> list[tuple[str, Line]]:
    tone = "good" if state.ending == "landed" else "bad"
    title = f"ENDED {'✔' if tone == 'good' else '✘'} {state.ending}"
    why = [("", ((f"  {piece}", ""),)) for piece in wrapped(shown(state.ending_why, 600), width - 4)]
    take = f"fleet merge {shown(state.run)} --into BRANCH" if state.published else ""
    return [("", ((title, tone),)), *why, *([("", (("  take it: ", "dim"), (take, "bold")))] if take else [])]
