"""`str_replace_based_edit_tool`: looks at files and changes them, at the desk only. Paths are the desk's to judge."""

import posixpath
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from agents.models.answer import Block
from agents.text import capped, numbered
from agents.tools.tool import Arguments, BadInput, Said, arguments
from fleet.ports import Desk, DeskError

_AROUND = 4  # lines shown on either side of a change
_END = -1  # the wire's word for the last line


class View(Arguments):
    command: Literal["view"]
    path: str
    view_range: tuple[int, int] | None = None


class Create(Arguments):
    command: Literal["create"]
    path: str
    file_text: str


class Replace(Arguments):
    command: Literal["str_replace"]
    path: str
    old_str: str = Field(min_length=1)
    new_str: str = ""


class Insert(Arguments):
    command: Literal["insert"]
    path: str
    insert_line: int = Field(ge=0)
    insert_text: str


class Edit(RootModel[Annotated[View | Create | Replace | Insert, Field(discriminator="command")]]):
    """One of the four commands."""


class EditTool:
    """Views and edits files at a desk."""

    name = "str_replace_based_edit_tool"
    declaration: Block = {  # noqa: RUF012 - the wire's own name, never changed
        "type": "text_editor_20250728",
        "name": "str_replace_based_edit_tool",
    }

    def __init__(self, desk: Desk, *, output_chars: int) -> None:
        self._desk = desk
        self._output_chars = output_chars

    def reads_only(self, raw: Mapping[str, Any]) -> bool:
        return raw.get("command") == "view"

    async def run(self, raw: Mapping[str, Any]) -> Said:
        edit = arguments(Edit, raw).root
        path = self._inside(edit.path)
        match edit:
            case View():
                return Said(capped(await self._view(path, edit), self._output_chars))
            case Create():
                await self._desk.write(path, _encoded(edit.file_text))
                return Said(f"Written: {path}")
            case Replace():
                return await self._replace(path, edit)
            case Insert():
                return await self._insert(path, edit)

    def _inside(self, path: str) -> str:
        """The path as the desk wants it: relative to its root."""
        root = self._desk.root.rstrip("/")
        normal = posixpath.normpath(path) if path.strip() else "."
        if normal in {root, "."}:
            return "."
        return normal.removeprefix(f"{root}/")

    async def _view(self, path: str, view: View) -> str:
        if path == ".":
            return await self._listing(path)
        try:
            text = await self._text(path)
        except DeskError as no_file:
            if view.view_range is not None:
                raise
            try:
                return await self._listing(path)
            except DeskError:
                raise no_file from None
        first, last = view.view_range or (1, _END)
        lines = len(text.splitlines())
        if not 1 <= first <= max(lines, 1) or (last != _END and last < first):
            raise DeskError(f"view_range [{first}, {last}] is no range of {path}, which has {lines} lines")
        return numbered(text, first=first, last=None if last == _END else last) or f"({path} is empty)"

    async def _listing(self, path: str) -> str:
        return "\n".join(await self._desk.list(path)) or "(empty folder)"

    async def _text(self, path: str) -> str:
        data = await self._desk.read(path)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DeskError(f"{path} is not UTF-8 text; use bash for it") from error

    async def _replace(self, path: str, edit: Replace) -> Said:
        text = await self._text(path)
        old, new = edit.old_str, edit.new_str
        if "\r\n" in text and "\r\n" not in old:
            old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
        count = text.count(old)
        if count != 1:
            found = "does not occur" if count == 0 else f"occurs {count} times; give more of the lines around it"
            return Said(f"Nothing changed: old_str {found} in {path}. It must match exactly once.", is_error=True)
        at = text.index(old)
        changed = text[:at] + new + text[at + len(old) :]
        await self._desk.write(path, _encoded(changed))
        return self._around(path, changed, first=text.count("\n", 0, at) + 1, lines=new.count("\n") + 1)

    async def _insert(self, path: str, edit: Insert) -> Said:
        text = await self._text(path)
        ending = "\r\n" if "\r\n" in text else "\n"
        lines = text.split("\n")
        if text.endswith("\n") or not text:
            lines.pop()
        if edit.insert_line > len(lines):
            raise DeskError(f"insert_line {edit.insert_line} is past the end of {path}, which has {len(lines)} lines")
        head = "".join(f"{line}\n" for line in lines[: edit.insert_line])
        rest = text[len(head) :]
        new = edit.insert_text.replace("\r\n", "\n").removesuffix("\n").replace("\n", ending)
        changed = f"{head}{new}{ending}{rest}" if len(head) <= len(text) else f"{text}{ending}{new}{ending}"
        await self._desk.write(path, _encoded(changed))
        return self._around(path, changed, first=edit.insert_line + 1, lines=new.count("\n") + 1)

    def _around(self, path: str, text: str, *, first: int, lines: int) -> Said:
        start = max(1, first - _AROUND)
        shown = numbered(text, first=start, last=first + lines - 1 + _AROUND)
        return Said(capped(f"{path} now reads:\n{shown}", self._output_chars))


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(f"The text can't be written as UTF-8: {error.reason}") from error
