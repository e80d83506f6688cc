"""Putting a value into a shell command so that the command keeps its words, whatever the value holds.

Reads the command as a POSIX shell would, just far enough to know where a value lands. Where it takes a real shell to
tell, only values that mean nothing to any shell are let in.
"""

import re

PLAIN = re.compile(r"[A-Za-z0-9_@%+=:./,-]*")
"""What stands for itself anywhere in a command, in quotes or out of them."""
_BARE = re.compile(r"[A-Za-z0-9_@%+=:./-]+")  # outside of quotes a comma may part the words in braces
_SCRIPTED = re.compile(
    r"(?:^|[\s;&|(/])(?:"
    r"(?:(?:ba|da|z|k|fi)?sh|python[\d.]*|node|perl|ruby)\s[^;&|\n]*?(?:-\w*[ce]|--eval|--command)\s+"
    r"|(?:awk|sed|ssh|su|xargs|parallel|watch|env|trap|source|\.|alias|compgen|complete|bind)\s[^;&|\n]*"
    r"|(?:read|unset|declare|typeset|local|export|readonly|mapfile|readarray|getopts|wait)\s[^;&|\n]*"
    r"|(?:printf|test|\[)\s[^;&|\n]*?-[vR]\s+"
    r")\S*$"
)
"""Before a value: what would run it as a script, or take it for a variable's name, whose subscript bash evaluates.
No such list is whole: what a program makes of its argument is the program's."""
_HARD = re.compile(r"`|\$\{|\$'|<<|\(\(|\[\[|\b(?:case|eval|let)\b")
"""After which it takes a shell to tell what is quoted, or what a quoted word is evaluated as."""
_SINGLE, _DOUBLE, _CODE, _UNKNOWN = "'", '"', "code", "unknown"


def fitted(command: str, start: int, value: str, *, may_be_option: bool) -> str | None:
    """What to write at `start` of `command` for `value`, or None where that could change what the command does.

    `may_be_option`: whether whoever chose the value may also have chosen an option of the program.
    """
    before = command[:start]
    if before.endswith("$"):
        return None
    opens_word = not before or before.rstrip("'\"")[-1:] in {"", " ", "\t", "\n", ";", "&", "|", "("}
    if value.startswith("-") and opens_word and not may_be_option:
        return None
    if _place(before) == _CODE and not _SCRIPTED.search(before):
        return value if _BARE.fullmatch(value) else _quoted(value)
    return value if PLAIN.fullmatch(value) else None


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "'\"'\"'") + "'"


def _place(before: str) -> str:
    """Where one stands after `before`: in code, in a string, or where only a shell knows."""
    if _HARD.search(before):
        return _UNKNOWN
    inside, at = [_CODE], 0
    while at < len(before):
        here, top = before[at], inside[-1]
        if here == "\\" and top != _SINGLE:
            at += 1
            if at == len(before):  # the value itself would be escaped
                return _UNKNOWN
        elif here == "#" and top == _CODE and (at == 0 or before[at - 1] in " \t\n;&|("):
            return _UNKNOWN
        elif here in "'\"()$":
            inside = _after(here, before[at + 1 : at + 2], inside)
            at += before.startswith("$(", at)
        if not inside:
            return _UNKNOWN
        at += 1
    return inside[-1]


def _after(here: str, following: str, inside: list[str]) -> list[str]:
    """What one is inside of after a quote, a parenthesis or a dollar."""
    top = inside[-1]
    if top != _CODE and here == top:
        return inside[:-1]
    if top == _SINGLE:
        return inside
    if here == "$":
        return [*inside, _CODE] if following == "(" else inside
    if here == _DOUBLE:
        return [*inside, _DOUBLE]
    if top == _DOUBLE:
        return inside
    return inside[:-1] if here == ")" else [*inside, _SINGLE if here == _SINGLE else _CODE]
