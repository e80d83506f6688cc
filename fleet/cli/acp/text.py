"""Text as an editor shows it: Markdown, in which texts of others stay what they are."""

from dashboards.text.safe import safe_block

LINES = 400


def as_code(text: str) -> str:
    """A block that nothing inside can close."""
    shown = safe_block(text, lines=LINES)
    longest = max((len(run) for run in _runs_of_ticks(shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{shown}\n{fence}"


def _runs_of_ticks(text: str) -> list[str]:
    return "".join(char if char == "`" else " " for char in text).split()
