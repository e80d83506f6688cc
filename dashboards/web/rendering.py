"""Templates: everything is escaped and made safe to show unless a template wrote it itself."""

from pathlib import Path
from zlib import crc32

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dashboards.subtask_map import Span, age, marked, model_name
from dashboards.text.formats import clock_in, count, counted, duration, moment, money, rate, tool_call
from dashboards.text.safe import safe, safe_block, safe_goal

# ---- rendering -------------------------------------------------------------------------------------------------------


LONGEST = 4_000  # characters of one text; conversations, logs and diffs come as lines


def _shown(value: object) -> object:
    """What a template prints for a value: text of others loses what could act on a reader's screen."""
    return safe(value, limit=LONGEST) if isinstance(value, str) and not isinstance(value, Markup) else value


def _lines(text: str, lines: int = 400) -> Markup:
    """A text of several lines, for a `pre`."""
    return Markup("\n").join(safe_block(text, lines=lines).split("\n"))


def _goal(text: str, limit: int) -> str:
    return safe_goal(text, limit=limit)


def _marked(state: str) -> Span:
    return marked(state)


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        age=age,
        count=count,
        counted=counted,
        duration=duration,
        goal=_goal,
        money=money,
        moment=moment,
        lines=_lines,
        marked=_marked,
        model=model_name,
        tool_call=tool_call,
    )
    made.globals.update(clock_in=clock_in, rate=rate)
    return made


def version_of(html: str) -> str:
    """A short name for what a part of a page shows: it is sent again only if that changes."""
    return f"{crc32(html.encode('utf-8', 'replace')):08x}"
