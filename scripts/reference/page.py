"""A page that is partly written by hand: only the text between the marks is generated from the code."""

from collections.abc import Iterable

BEGIN = "<!-- made from the code by `make docs`: begin -->"
END = "<!-- made from the code by `make docs`: end -->"


def replace_marked(document: str, generated: str) -> str:
    """`document` with the generated text between its marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{generated.strip()}\n\n{END}{after}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    names = list(head)
    lines = [_row(names), "|" + "---|" * len(names), *(_row(row) for row in rows)]
    return "\n".join(lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
