"""Looking at files and changing them."""

from typing import Any

import pytest

from agents.tools.edit import EditTool
from agents.tools.tool import ToolInputError, ToolOptions, ToolResult
from fleet.ports.agents import WorkspaceError
from tests.agents.conftest import FolderWorkspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def tool(workspace: FolderWorkspace) -> EditTool:
    (workspace.folder / "src").mkdir()
    (workspace.folder / "src" / "a.py").write_text("one\ntwo\nthree\n")
    return EditTool(workspace, ToolOptions(5, 10_000))


async def run(tool: EditTool, command: str, path: str = "src/a.py", **arguments: Any) -> ToolResult:
    return await tool.run({"command": command, "path": path, **arguments})


async def test_view_numbers_lines(tool: EditTool) -> None:
    assert (await run(tool, "view")).text == "     1\tone\n     2\ttwo\n     3\tthree"


async def test_view_shows_a_range(tool: EditTool) -> None:
    assert (await run(tool, "view", view_range=[2, 2])).text == "     2\ttwo"
    assert (await run(tool, "view", view_range=[2, -1])).text == "     2\ttwo\n     3\tthree"


@pytest.mark.parametrize("wrong", [[0, 1], [4, 5], [3, 2], [-1, -1]])
async def test_view_refuses_an_invalid_range(tool: EditTool, wrong: list[int]) -> None:
    with pytest.raises(WorkspaceError, match="3 lines"):
        await run(tool, "view", view_range=wrong)


async def test_view_lists_a_folder(tool: EditTool, workspace: FolderWorkspace) -> None:
    assert (await run(tool, "view", "src")).text == "a.py"
    assert (await run(tool, "view", workspace.root)).text == "src/"
    assert (await run(tool, "view", ".")).text == "src/"


async def test_view_reports_missing_and_binary_files(tool: EditTool, workspace: FolderWorkspace) -> None:
    (workspace.folder / "b.bin").write_bytes(b"\xff\x00")
    with pytest.raises(WorkspaceError, match="No such file"):
        await run(tool, "view", "gone.py")
    with pytest.raises(WorkspaceError, match="not UTF-8"):
        await run(tool, "view", "b.bin")


async def test_create_writes_a_file_and_its_folders(tool: EditTool, workspace: FolderWorkspace) -> None:
    await run(tool, "create", f"{workspace.root}/new/deep/b.py", file_text="ü\n")
    assert (workspace.folder / "new/deep/b.py").read_text(encoding="utf-8") == "ü\n"


@pytest.mark.parametrize("path", ["../out.txt", "/etc/passwd", "src/../../out.txt"])
async def test_no_path_leaves_the_desk(tool: EditTool, path: str) -> None:
    with pytest.raises(WorkspaceError):
        await run(tool, "create", path, file_text="x")


async def test_str_replace_changes_the_one_match_and_shows_it(tool: EditTool, workspace: FolderWorkspace) -> None:
    result = await run(tool, "str_replace", old_str="two\n", new_str="2\n2.5\n")
    assert (workspace.folder / "src/a.py").read_text() == "one\n2\n2.5\nthree\n"
    assert "     3\t2.5" in result.text


@pytest.mark.parametrize(("old", "why"), [("four", "does not occur"), ("t", "occurs 2 times")])
async def test_str_replace_wants_exactly_one_match(
    tool: EditTool, workspace: FolderWorkspace, old: str, why: str
) -> None:
    result = await run(tool, "str_replace", old_str=old, new_str="x")
    assert result.is_error
    assert why in result.text
    assert (workspace.folder / "src/a.py").read_text() == "one\ntwo\nthree\n"


async def test_line_ends_of_windows_survive(tool: EditTool, workspace: FolderWorkspace) -> None:
    (workspace.folder / "w.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await run(tool, "str_replace", "w.txt", old_str="one\ntwo", new_str="1\n2")
    await run(tool, "insert", "w.txt", insert_line=2, insert_text="2.5\n")
    assert (workspace.folder / "w.txt").read_bytes() == b"1\r\n2\r\n2.5\r\nthree\r\n"


@pytest.mark.parametrize(
    ("line", "new", "after"),
    [
        (0, "zero\n", "zero\none\ntwo\nthree\n"),
        (1, "x", "one\nx\ntwo\nthree\n"),
        (3, "four\nfive\n", "one\ntwo\nthree\nfour\nfive\n"),
    ],
)
async def test_insert_puts_lines_after_a_line(
    tool: EditTool, workspace: FolderWorkspace, line: int, new: str, after: str
) -> None:
    await run(tool, "insert", insert_line=line, insert_text=new)
    assert (workspace.folder / "src/a.py").read_text() == after


async def test_insert_into_an_empty_file_and_after_an_unfinished_line(
    tool: EditTool, workspace: FolderWorkspace
) -> None:
    (workspace.folder / "e.txt").write_text("")
    await run(tool, "insert", "e.txt", insert_line=0, insert_text="a\n")
    assert (workspace.folder / "e.txt").read_text() == "a\n"
    (workspace.folder / "u.txt").write_text("a\nb")
    await run(tool, "insert", "u.txt", insert_line=2, insert_text="c\n")
    assert (workspace.folder / "u.txt").read_text() == "a\nb\nc\n"


async def test_insert_past_the_end_is_refused(tool: EditTool) -> None:
    with pytest.raises(WorkspaceError, match="3 lines"):
        await run(tool, "insert", insert_line=4, insert_text="x")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": "undo_edit", "path": "a"},
        {"command": "view"},
        {"command": "view", "path": 5},
        {"command": "create", "path": "a", "file_text": "x", "mode": "0777"},
        {"command": "str_replace", "path": "a", "old_str": "", "new_str": "x"},
        {"command": "insert", "path": "a", "insert_line": -1, "insert_text": "x"},
        {"command": "create", "path": "a", "file_text": "\ud800"},
    ],
)
async def test_invalid_input_is_refused(tool: EditTool, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolInputError):
        await tool.run(arguments)
