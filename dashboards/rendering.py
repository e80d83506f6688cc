"""Templates. All values are escaped and made safe to show. Only the templates themselves can add markup.

Pages are HTML. Reports are HTML or Markdown. Shared templates are in `dashboards/templates`.
"""

from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dashboards.subtask_map import age, marked, model_name
from dashboards.text.formats import clock_in, count, counted, duration, moment, money, rate, tool_call
from dashboards.text.safe import markdown_code, markdown_text, safe, safe_block, safe_goal

SHARED = Path(__file__).parent / "templates"
LONGEST = 4_000  # characters of one text (conversations, logs and diffs are lists of lines)


def _shown(value: object) -> object:
    """Return a value for a template. Untrusted text loses control characters."""
    return safe(value, limit=LONGEST) if isinstance(value, str) and not isinstance(value, Markup) else value


def _lines(text: str, lines: int = 400) -> Markup:
    """Text of several lines, for a `pre`."""
    return Markup("\n").join(safe_block(text, lines=lines).split("\n"))


def _log(lines: Iterable[str]) -> Markup:
    """Lines of text, for a `pre`."""
    return Markup("\n").join(map(safe_block, lines))


def _goal(text: str, limit: int) -> str:
    return safe_goal(text, limit=limit)


def environment(folder: Path) -> Environment:
    """The templates of a folder, and the shared templates."""
    made = Environment(
        loader=FileSystemLoader((folder, SHARED)),
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
        log=_log,
        marked=marked,
        model=model_name,
        tool_call=tool_call,
    )
    made.globals.update(clock_in=clock_in, rate=rate)
    return made


def markdown_environment(folder: Path) -> Environment:
    """The same, with texts escaped for Markdown."""
    made = environment(folder).overlay(finalize=_shown_in_markdown)
    made.filters |= {"log": _fenced, "code": lambda text: Markup(markdown_code(text))}  # noqa: S704 - escaped for Markdown
    return made


def _shown_in_markdown(value: object) -> object:
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return Markup(markdown_text(value))  # noqa: S704 - escaped for Markdown


def _fenced(lines: Iterable[str]) -> Markup:
    """Lines for a fenced block. None of them can close the fence."""
    return Markup("".join(f"{safe_block(line)}\n".replace("`", "'") for line in lines))  # noqa: S704 - escaped for Markdown
