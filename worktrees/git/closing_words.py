"""Words in a commit message by which a forge closes an issue, once the commit is on its default branch.

GitHub, GitLab, Gitea and Bitbucket know such words, in forms that differ a little: "fixes #7", "Closes: acme/shop#7",
"resolve issue #7", "implements https://…/issues/7".
"""

import re

_WORD = r"\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?|reopen(?:s|ed|ing)?)"
_BETWEEN = r"[\s:,*_~(\[`'\"-]{1,20}(?:(?:issues?|bugs?|tickets?)\s{1,20})?"
_REFERENCE = r"(?:[\w./-]{0,200}#\d+|GH-\d+|https?://[^\s<>()\[\]]{1,200}/\d[^\s<>()\[\]]{0,200})"
_CLOSES = re.compile(rf"({_WORD}{_BETWEEN})({_REFERENCE})", re.IGNORECASE)


def without_closing_words(text: str) -> str:
    """The text, still with its references, but none directly behind a word that closes: "fixes (see #7)"."""
    return _CLOSES.sub(r"\1(see \2)", text)
