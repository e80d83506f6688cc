"""Replaces the generated part of a page between two marks. The remainder of the page is written by hand."""

from collections.abc import Iterable

BEGIN = "<!-- made from the code by `make docs`: begin -->"
END = "<!-- made from the code by `make docs`: end -->"


def replace_marked(document: str, generated: str) -> str:
    """Return the document with the generated text between its marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{generated.strip()}\n\n{END}{after}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    names = list(head)
    lines = [_row(names), "|" + "---|" * len(names), *(_row(row) for row in rows)]
    return "\n".join(lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
