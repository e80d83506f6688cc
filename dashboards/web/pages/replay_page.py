"""A run as it was at one of its facts, with a slider over all of them. Links lead there without scripts, too."""

from dataclasses import dataclass, replace

from dashboards.runs.past import Past
from dashboards.web.pages.opening import opened, place, read_past
from dashboards.web.pages.page import Reader, Shown
from dashboards.web.pages.run_page import run_parts
from fleet.core.views.run.run_view import status_view

JUMP_S = 10.0


@dataclass(frozen=True, slots=True)
class Step:
    """A link to another moment."""

    key: str
    """As in the terminal's replay, where it has one."""
    text: str
    place: int


async def replay_page(reader: Reader, name: str) -> Shown:
    run = await opened(reader, name)
    past = await read_past(reader, run)
    if not len(past):
        return Shown(name, {"head": reader.part("loading", run=name)}, is_live=False)
    at = place(reader.query.get("at", ""), past)
    reader = replace(reader, at=at, may_decide=False)
    then = past.at(at)
    state = then.state
    if state is None:
        raise ValueError(f"{name} has no state after its fact {at}")
    common = {"run": name, "at": at, "last": len(past), "loaded": past.loaded, "stride": max(1, len(past) // 150)}
    view = status_view(state, then.now, alive=then.alive)
    parts = {
        "head": reader.part("replay_head", view=view, **common),
        "slider": reader.part("slider", **common),
        "moment": reader.part("moment", seconds=past.moment(at), now=then.now, steps=_steps(past, at), **common),
        **{id_: part for id_, part in run_parts(reader, then, state, view) if id_ not in {"head", "needs"}},
    }
    return Shown(f"{name}: replay", parts, is_live=False)


def _steps(past: Past, at: int) -> list[Step]:
    seconds = past.moment(at)
    return [
        Step("Home", "Start", 1),
        Step("<", f"{JUMP_S:.0f} s back", min(at, past.place_at(seconds - JUMP_S))),
        Step(",", "Event before", past.event_before(at)),
        Step(".", "Next event", past.event_after(at)),
        Step(">", f"{JUMP_S:.0f} s on", max(at, past.place_at(seconds + JUMP_S))),
        Step("End", "End", len(past)),
    ]
