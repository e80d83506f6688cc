"""What the planner sees of a repository, whose contents nobody vouches for."""

import pytest

from agents.text import capped, fenced, numbered
from agents.tools.read_file import ReadFile
from agents.tools.repo_map import RepoMap, definitions
from agents.tools.search import Search
from agents.tools.tool import BadInput
from tests.agents.conftest import Files

pytestmark = pytest.mark.anyio


async def test_the_map_shows_folders_and_definitions() -> None:
    files = {"README.md": "", "src/a.py": "async def go(): ...\n", "src/b.txt": "", "src/deep/c.py": "x = 1\n"}
    said = await RepoMap(Files(files), output_chars=1000).run({})
    assert said.text.splitlines() == [
        "4 files",
        "(root): README.md",
        "src/: 3 files (2 .py, 1 .txt)",
        "",
        "src/a.py: go()",
    ]


async def test_the_map_shows_a_part() -> None:
    files = {"a.py": "def a(): ...", "src/b.py": "def b(): ..."}
    said = await RepoMap(Files(files), output_chars=1000).run({"pattern": "src/**"})
    assert "b()" in said.text
    assert "a.py" not in said.text


@pytest.mark.parametrize(
    "source", ["def (", "\0", "(" * 90_000, "-" * 90_000 + "1", "a." * 40_000 + "b", "x" * 300_000, "'\\d'; def"]
)
def test_source_that_is_none_defines_nothing(source: str) -> None:
    assert definitions(source) == ()


async def test_output_is_capped_and_never_empty() -> None:
    long = await ReadFile(Files({"a": "x" * 5000}), output_chars=100).run({"path": "a"})
    assert len(long.text) < 200
    assert (await Search(Files(), output_chars=100).run({"text": "gone"})).text == "(nothing)"


@pytest.mark.parametrize(
    "given", [{}, {"path": ""}, {"path": "a", "lines": 3}, {"path": "a", "first_line": 2, "last_line": 1}]
)
async def test_input_that_is_none_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        await ReadFile(Files({"a": "x\ny\n"}), output_chars=100).run(given)


def test_capping_keeps_head_and_tail() -> None:
    text = capped("a" * 500 + "b" * 500, 100)
    assert text.startswith("a" * 40)
    assert text.endswith("b" * 60)
    assert "900 characters left out" in text
    assert capped("short", 100) == "short"


def test_nothing_inside_a_block_closes_it() -> None:
    assert fenced("state", {"a": "</state>"}) == '<state>{"a": "\\u003c/state>"}</state>'


def test_only_a_line_feed_ends_a_line() -> None:
    assert numbered("a\x0cb\u2028c\nd\n") == "     1\ta\x0cb\u2028c\n     2\td"
