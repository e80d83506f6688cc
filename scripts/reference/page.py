"""A page that is half written and half made: what stands between the marks is replaced, the rest is left alone.

The words around the tables are a person's; the tables say what the code says, because they are read out of it.
"""

from collections.abc import Iterable

BEGIN = "<!-- made from the code by `make docs`: begin -->"
END = "<!-- made from the code by `make docs`: end -->"


def renewed(document: str, made: str) -> str:
    """`document` with `made` between its marks."""
    before, begun, rest = document.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{made.strip()}\n\n{END}{after}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    names = list(head)
    lines = [_row(names), "|" + "---|" * len(names), *(_row(row) for row in rows)]
    return "\n".join(lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
