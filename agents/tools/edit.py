"""`str_replace_based_edit_tool`: views and edits files of the workspace, which checks the paths."""

import posixpath
from collections.abc import Mapping
from io import StringIO
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, RootModel

from agents.models.answer import Block
from agents.models.text import capped, numbered, redacted
from agents.tools.tool import Arguments, ToolInputError, ToolResult, WorkerTool, misfit, parse_arguments
from fleet.ports.agents import WorkspaceError

_AROUND = 4  # lines shown on either side of a change
_END = -1  # the last line, in the wire format


class ViewTool(Arguments):
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


class Edit(RootModel[Annotated[ViewTool | Create | Replace | Insert, Field(discriminator="command")]]):
    """One of the four commands."""


class EditTool(WorkerTool):
    """Views and edits files in a workspace."""

    name: ClassVar = "str_replace_based_edit_tool"
    declaration: ClassVar[Block] = {"type": "text_editor_20250728", "name": name}

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        edit = parse_arguments(Edit, raw).root
        path = self._inside(edit.path)
        match edit:
            case ViewTool():
                return ToolResult(capped(await self._view(path, edit), self.options.output_chars))
            case Create():
                await self.workspace.write(path, _encoded(edit.file_text))
                return ToolResult(f"Written: {path}")
            case Replace():
                return await self._replace(path, edit)
            case Insert():
                return await self._insert(path, edit)

    def _inside(self, path: str) -> str:
        """Return the path relative to the root of the workspace."""
        root = self.workspace.root.rstrip("/")
        normal = posixpath.normpath(path) if path.strip() else "."
        return "." if normal == root else normal.removeprefix(f"{root}/")

    async def _view(self, path: str, view: ViewTool) -> str:
        try:
            text = await self._text(path)
        except WorkspaceError as no_file:
            if view.view_range is not None:
                raise
            try:
                return "\n".join(await self.workspace.list(path)) or "(empty folder)"
            except WorkspaceError:
                raise no_file from None
        first, last = view.view_range or (1, _END)
        lines = len(text.splitlines())
        if not 1 <= first <= max(lines, 1) or (last != _END and last < first):
            raise WorkspaceError(f"view_range [{first}, {last}] is not a range of {path}, which has {lines} lines")
        return numbered(text, first=first, last=None if last == _END else last) or f"({path} is empty)"

    async def _text(self, path: str) -> str:
        data = await self.workspace.read(path)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise WorkspaceError(f"{path} is not UTF-8 text. Use bash instead.") from error

    async def _replace(self, path: str, edit: Replace) -> ToolResult:
        text = await self._text(path)
        old, new = edit.old_str, edit.new_str
        if "\r\n" in text and "\r\n" not in old:
            old, new = _with_ends(old, "\r\n"), _with_ends(new, "\r\n")
        count = text.count(old)
        if count != 1:
            how_often = f"occurs {count} times (include more of the surrounding lines)" if count else "does not occur"
            message = f"The file was not changed: old_str {how_often} in {path}. It must match exactly once."
            return ToolResult(message, is_error=True)
        before, _, after = text.partition(old)
        return await self._change(path, f"{before}{new}{after}", first=before.count("\n") + 1, new=new)

    async def _insert(self, path: str, edit: Insert) -> ToolResult:
        text = await self._text(path)
        ending = "\r\n" if "\r\n" in text else "\n"
        lines = list(StringIO(text, newline="\n"))
        if edit.insert_line > len(lines):
            end = f"the end of {path}, which has {len(lines)} lines"
            raise WorkspaceError(f"insert_line {edit.insert_line} is past {end}")
        before, after = lines[: edit.insert_line], lines[edit.insert_line :]
        if before and not before[-1].endswith("\n"):
            before.append(ending)
        new = _with_ends(edit.insert_text, "\n").removesuffix("\n")
        changed = "".join((*before, _with_ends(new, ending), ending, *after))
        return await self._change(path, changed, first=edit.insert_line + 1, new=new)

    async def _change(self, path: str, text: str, *, first: int, new: str) -> ToolResult:
        """Write the file, and show `new`, which starts at line `first`, with the surrounding lines."""
        await self.workspace.write(path, _encoded(text))
        around = numbered(text, first=max(1, first - _AROUND), last=first + new.count("\n") + _AROUND)
        return ToolResult(capped(f"Changed {path}:\n{around}", self.options.output_chars))


def _with_ends(text: str, ending: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", ending)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolInputError(f"The text can't be written as UTF-8: {error.reason}") from error


# ---- bash ------------------------------------------------------------------------------------------------------------
# `bash`: runs a command in the worker's sandbox, in a new shell at the repository's root.


class BashArguments(Arguments):
    command: str | None = Field(default=None, min_length=1, max_length=100_000)
    restart: bool = False


class Bash(WorkerTool):
    """Runs commands in a workspace."""

    name: ClassVar = "bash"
    declaration: ClassVar[Block] = {"type": "bash_20250124", "name": "bash"}

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        arguments = parse_arguments(BashArguments, raw)
        if arguments.command is None:
            if arguments.restart:
                return ToolResult("A restart is not necessary, because every command starts in a new shell.")
            raise misfit("command is missing")
        if "\0" in arguments.command:
            raise misfit("command contains a NUL character")
        options = self.options
        done = await self.workspace.run(arguments.command, timeout_s=options.command_s, extras=options.extras)
        output = capped(redacted(done.output, options.secrets), options.output_chars).rstrip("\n")
        if done.timed_out:
            ending = f"[stopped after {options.command_s:g} s: the command did not finish]"
        else:
            ending = f"[exit code {done.exit_code}]"
        return ToolResult(f"{output}\n{ending}" if output else ending, is_error=done.timed_out)
