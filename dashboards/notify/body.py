"""What a notification says, as JSON: in a form of ours, or in that of a receiver by a template.

Texts of models and repositories are data of others in a place where people click: they keep no mention, link or markup.
"""

import json
from collections.abc import Sequence
from string import Template

from dashboards.text.safe import safe
from fleet.core.base.json_text import parse_json
from fleet.core.views.dump import dump_view
from fleet.core.views.machine.notification_view import CauseView, NotificationView
from fleet.core.views.run.causes import Cause

TEXT, TITLE, MOST = 300, 160, 10
_HARMLESS = str.maketrans("<>@`*[]", "\u2039\u203a\uff20\u02cb\u2217\u2045\u2046")  # look alike, and do nothing
PLACEHOLDERS = ("title", "text", "run", "event", "command", "link", "key")


def notification(key: str, run: str, causes: Sequence[Cause], link: str) -> NotificationView:
    shown = tuple(_view(each) for each in causes[:MOST])
    left_out = f"and {len(causes) - MOST} more" if len(causes) > MOST else ""
    title = shown[0].title if len(causes) == 1 else f"{len(causes)} things to know"
    lines = [f"{each.title}: {each.text}" if len(causes) > 1 else each.text for each in shown]
    lines += [f"→ {each.command}" for each in shown[:1] if each.command]
    return NotificationView(
        key=key,
        run=run,
        title=f"fleet {safe(run, limit=TITLE)}: {title}",
        text="\n".join((*lines, *filter(None, (left_out,)))),
        link=link.replace("{run}", run),
        causes=shown,
    )


def _view(cause: Cause) -> CauseView:
    return CauseView(cause.event, harmless(cause.title, TITLE), harmless(cause.text, TEXT), cause.command, cause.since)


def harmless(text: str, limit: int) -> str:
    """A text of others on one line, without anything that a chat, a mail or a desktop would act on."""
    return safe(text, limit=limit).translate(_HARMLESS).replace("://", ": //").replace("www.", "www .")


def dump_body(view: NotificationView, template: str = "") -> str:
    """The body. In a template each value stands where it is written in a JSON text, and can't leave it."""
    if not template:
        return json.dumps(dump_view(view), ensure_ascii=False)
    events = dict.fromkeys(each.event for each in view.causes)
    command = view.causes[0].command if view.causes else ""
    values = {"event": " ".join(events), "command": command}
    values |= {name: str(getattr(view, name)) for name in ("title", "text", "run", "link", "key")}
    return Template(template).substitute({name: json.dumps(text)[1:-1] for name, text in values.items()})


def template_problem(template: str) -> str | None:
    """Why a template can't be used."""
    view = NotificationView('k"', "r", 't"', 'a\n"b', "", ())
    try:
        parse_json(dump_body(view, template))
    except KeyError as error:
        return f"there is no ${error.args[0]}; there are ${', $'.join(PLACEHOLDERS)}"
    except ValueError as error:
        return f"it makes no JSON: {error}; put each placeholder between double quotes"
    return None
