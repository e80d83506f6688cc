"""Tokens taken out of what is shown or kept: in addresses, and by the shapes that forges give their tokens."""

import re

HIDDEN = "***"
_IN_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s'\"]+@", re.IGNORECASE)
_TOKEN = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|gl[a-z]{2,8}-[A-Za-z0-9_.-]{16,})"
    r"|(?i:\b(?:authorization|private-token|job-token)\b\s*[:=]\s*)\S+(?:[ \t]+\S+)?"
)


def redact(text: str) -> str:
    """The text without accounts and tokens in addresses, and without anything shaped like a token."""
    return _TOKEN.sub(HIDDEN, _IN_ADDRESS.sub(rf"\1{HIDDEN}@", text))
