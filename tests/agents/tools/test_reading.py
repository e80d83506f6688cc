"""What the planner sees of a repository, whose contents are untrusted."""

from pathlib import Path

import pytest

from agents.models.text import capped, fenced, numbered
from agents.tools.reading import ListFiles, ReadFile, RepoMap, Search, outline, parse_sources
from agents.tools.tool import ToolInputError
from tests.fleet.eyes import Files

pytestmark = pytest.mark.anyio


async def test_the_map_shows_folders_and_definitions() -> None:
    files = {"README.md": "", "src/a.py": "async def go(): ...\n", "src/b.txt": "", "src/deep/c.py": "x = 1\n"}
    result = await RepoMap(Files(files), output_chars=1000).run({})
    assert result.text.splitlines() == [
        "4 files",
        "(root): README.md",
        "src/: 3 files (2 .py, 1 .txt)",
        "",
        "src/a.py: go()",
    ]


async def test_the_map_shows_a_part() -> None:
    files = {"a.py": "def a(): ...", "src/b.py": "def b(): ..."}
    result = await RepoMap(Files(files), output_chars=1000).run({"pattern": "src/**"})
    assert "b()" in result.text
    assert "a.py" not in result.text


LANGUAGES = {
    "a.py": (
        "class A:\n  def m(self): ...\n  def _own(self): ...\n@d\nasync def f():\n  def in_f(): ...\n",
        "A(m), f()",
    ),
    "a.js": ("export class A { m() {} }\nfunction f() {}\nexport const g = (a) => a, n = 1;\n", "A(m), f(), g()"),
    "a.ts": (
        "interface I { m(): void }\ntype T = string;\nexport abstract class A<X> { k(): void {} }\nenum E { A }\n",
        "I(m), T, A(k), E",
    ),
    "a.tsx": ("export const View = () => <p/>;\n", "View()"),
    "a.go": ("package p\ntype S struct {}\nfunc (s *S) M() {}\nfunc F() {}\n", "S, S.M(), F()"),
    "a.rs": (
        "struct S; trait T { fn m(&self); } impl T for S { fn m(&self) {} } mod x { pub fn y() {} }",
        "S, T(m), impl S(m), x(y)",
    ),
    "A.java": ("package a; public class A { interface B {} public A() {} void m() {} }", "A(B, A, m)"),
    "a.c": (
        "struct S { int a; };\nstruct S *g(void) { return 0; }\nstatic int f(int a) { return a; }\n",
        "S, g(), f()",
    ),
    "a.cpp": ("namespace n { class A { void m() {} }; }\nvoid n::A::q() {}\n", "n(A(m)), n::A::q()"),
    "a.cs": ("namespace N { public class A { void M() {} } interface I {} }", "N(A(M), I)"),
    "a.rb": ("module M\n class A\n  def m; end\n  def self.k; end\n end\nend\n", "M(A(m, k))"),
    "a.php": ("<?php class A { function m() {} } function f() {}", "A(m), f()"),
}


async def test_each_language_is_read_by_its_syntax_tree() -> None:
    parsed = await parse_sources({path: source for path, (source, _) in LANGUAGES.items()})
    assert {path: ", ".join(outline(parsed[path])) for path in parsed} == {
        p: expected for p, (_, expected) in LANGUAGES.items()
    }


async def test_invalid_sources_define_nothing_and_do_no_harm() -> None:
    odd = [
        "def (",
        "\0",
        "(" * 90_000,
        "-" * 90_000 + "1",
        "a." * 40_000 + "b",
        "'\\d'; def",
        "\ud800",
        "if x:\n " * 9_000,
    ]
    sources = {f"{number}.py": source for number, source in enumerate(odd)} | {"good.py": "def good(): ..."}
    parsed = await parse_sources(sources)
    assert [definition.name for path in parsed for definition in parsed[path]] == ["good"]


async def test_a_source_that_kills_the_parser_is_left_out(tmp_path: Path) -> None:
    dying = tmp_path / "outliner.py"
    dying.write_text(
        "import json, os, sys\n"
        "for path, text in json.load(sys.stdin).items():\n"
        "    os.abort() if 'die' in text else print(json.dumps([path, [[text, '', 1, -1]]]), flush=True)\n"
    )
    sources = {"a.py": "a", "b.py": "die", "c.py": "c", "d.py": "die", "e.py": "e"}
    assert set(await parse_sources(sources, program=dying)) == {"a.py", "c.py", "e.py"}


async def test_the_map_says_what_it_could_not_parse_and_counts_what_it_does_not_know() -> None:
    files = {"a.py": "def a(): ...", "b.py": "x" * 300_000, "c.zig": "fn c() void {}"}
    result = await RepoMap(Files(files), output_chars=1000).run({})
    assert result.text.splitlines()[2:] == ["", "a.py: a()", "[could not be parsed: b.py]"]


async def test_a_symbol_is_found_where_it_is_defined() -> None:
    files = {"a.py": "x = 1\nclass Token:\n    def parse(self): ...\n", "b.py": "from a import Token\nparse = 1\n"}
    search = Search(Files(files), output_chars=1000)
    assert (await search.run({"text": "Token", "kind": "symbol"})).text == "a.py:2: class Token:"
    assert (await search.run({"text": "parse", "kind": "symbol"})).text == "a.py:3: def parse(self): ..."
    assert "No definition found" in (await search.run({"text": "x", "kind": "symbol"})).text


async def test_output_is_capped_and_never_empty() -> None:
    long = await ReadFile(Files({"a": "x" * 5000}), output_chars=100).run({"path": "a"})
    assert len(long.text) < 200
    assert (await ListFiles(Files(), output_chars=100).run({})).text == "(nothing)"


@pytest.mark.parametrize(
    "given", [{}, {"path": ""}, {"path": "a", "lines": 3}, {"path": "a", "first_line": 2, "last_line": 1}]
)
async def test_invalid_input_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ToolInputError):
        await ReadFile(Files({"a": "x\ny\n"}), output_chars=100).run(given)


def test_capping_keeps_head_and_tail() -> None:
    text = capped("a" * 500 + "b" * 500, 100)
    assert text.startswith("a" * 40)
    assert text.endswith("b" * 60)
    assert "900 characters left out" in text
    assert capped("short", 100) == "short"


def test_nothing_inside_a_block_closes_it() -> None:
    assert fenced("state", {"a": "</state>"}) == '<state>{"a":"\\u003c/state>"}</state>'


def test_only_a_line_feed_ends_a_line() -> None:
    assert numbered("a\x0cb\u2028c\nd\n") == "     1\ta\x0cb\u2028c\n     2\td"
