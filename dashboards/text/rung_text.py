"""Rungs as plain text: the ladders of workers with what each rung cost, and why an attempt took its own."""

from collections.abc import Sequence

from dashboards.text.formats import money
from dashboards.text.safe import safe
from fleet.core.state.facts import RungChoice, RungOption, RungReason
from fleet.core.views.policy_document import RungView

NAME = 60
_HEAD = ("WORKER", "SIZE", "RUNG", "LANDED", "COST PER ATTEMPT", "COST PER LANDED SUBTASK", "")
_WHY: dict[RungReason, str] = {
    "evidence": "chosen: fewest dollars per landed subtask",
    "order": "the first in order, as too few attempts were observed",
    "explored": "explored: it may land subtasks for fewer dollars, and little is known of it",
    "named": "named by first_rung",
    "unpriced": "the first one: a price on the ladder is unknown",
    "climbed": "the next one, as the rung below failed",
    "again": "as in the attempt before, whose failure is no reason to climb",
}


def rung_rows(views: Sequence[RungView]) -> list[tuple[str, ...]]:
    """A table of the ladders, with its head; empty without any."""
    if not views:
        return []
    return [_HEAD, *(_row(view) for view in views)]


def _row(view: RungView) -> tuple[str, ...]:
    mark = "first, as named" if view.named else "first" if view.chosen else ""
    return (
        safe(view.worker, limit=NAME),
        view.size,
        safe(" ".join(filter(None, (view.model, view.effort))), limit=NAME),
        _landed(view),
        _cost(view.dollars),
        _cost(view.per_landed),
        mark,
    )


def _landed(seen: RungView | RungOption) -> str:
    return f"{seen.landed} of {seen.tried}" if seen.tried else "untried"


def _cost(dollars: float | None) -> str:
    return "-" if dollars is None else money(dollars)


def choice_text(choice: RungChoice) -> str:
    """Why an attempt took its rung, with what was expected of it."""
    text = f"{choice.rung + 1}{f' of {len(choice.options)}' if choice.options else ''}; {_WHY[choice.why]}"
    if choice.rung >= len(choice.options):
        return text
    option = choice.options[choice.rung]
    cost = "" if option.per_landed is None else f"; {money(option.per_landed)} per landed subtask"
    return f"{text} ({_landed(option)} attempts landed before{cost})"
