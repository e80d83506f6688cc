"""What the words of a check's command, and the files that it reads, say about who judges."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.verdicts.commands import CommandReading, CommandSource, Kind, reading
from fleet.core.verdicts.sources import reading_of


def read(kind: Kind, path: str, text: str, *names: str) -> CommandReading:
    return reading_of(CommandSource(kind, (path,), names), path, text)


@pytest.mark.parametrize(
    ("command", "judge"),
    [
        ("sh check.sh", "check.sh"),
        ("! sh ./check.sh", "check.sh"),
        ("bash -e check.sh arg", "check.sh"),
        ("./checks/run", "checks/run"),
        ("/repo/checks/run", "checks/run"),
        ("cd checks && ./run", "checks/run"),
        ("python3 checks/accept.py data.json", "checks/accept.py"),
        ("python3 -B -m checks.accept", "checks/accept.py"),
        ("python -m checks", "checks/__main__.py"),
        ("node check.mjs && echo fine", "check.mjs"),
        ("bash -c 'cd . && sh check.sh'", "check.sh"),
        ("env A=1 timeout -k 1 50 sh check.sh", "check.sh"),
        ("uv run python check.py", "check.py"),
        ("if sh check.sh; then exit 0; fi", "check.sh"),
        (". ./lib.sh; works", "lib.sh"),
        ("python3 prog.py | diff - expected.txt", "expected.txt"),
        ("python3 prog.py > out; cmp out expected.txt", "expected.txt"),
        ("cmp -s <(python3 prog.py) expected.txt", "expected.txt"),
        ("python3 prog.py | grep -qx -f patterns", "patterns"),
        ("sha256sum -c sums", "sums"),
        ("pytest -q -c ci/pytest.ini", "ci/pytest.ini"),
        ("pytest -p tools.plug", "tools/plug.py"),
        ("npx jest --config=ci/jest.json", "ci/jest.json"),
        ("node --test --import ./hook.mjs", "hook.mjs"),
        ("make -f ci/checks test", "ci/checks"),
        ("go run ./check", "check/main.go"),
        ("go run check.go", "check.go"),
        ("bats suite/a.bats", "suite/a.bats"),
        ("for each in checks/*.sh; do sh $each || exit 1; done", "checks/one.sh"),
        ('for a in one two; do for b in x; do sh "checks/${a}.$b"; done; done', "checks/two.x"),
        ("find checks -name '*.sh' -exec sh {} \\;", "checks/deep/one.sh"),
        ("find ci -name 'check_*' -execdir sh {} +", "ci/deep/check_one"),
        ("ls checks/*.sh | xargs -n 1 sh", "checks/one.sh"),
    ],
)
def test_what_decides_or_is_compared_with_is_a_judge(command: str, judge: str) -> None:
    assert reading(command).is_judge(judge)


def test_loops_within_loops_stay_small() -> None:
    words, turns = "$a " * 3_000, "sh $b $c $d\n" * 3_000
    reading(f"for a in {words}; do for b in {words}; do for c in {words}; do for d in {words}; do {turns} done")


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("python3 greet.py fr | grep -q Bonjour", "greet.py"),
        ('test "$(python3 greet.py)" = "$(cat want.txt)"', "greet.py"),
        ('test "$(python3 greet.py)" = "$(cat want.txt)"', "want.txt"),
        ("python3 greet.py > out && grep -q Bonjour out", "greet.py"),
        ("python3 accept.py data.json", "data.json"),
        ("python3 greet.py < input.txt", "input.txt"),
        ("python3 greet.py | awk -f sums.awk", "sums.awk"),
        ("for each in *.sh; do sh $each; done", "greet.sh"),
        ("find . -name '*.py' -exec python3 {} \\;", "deep/greet.py"),
    ],
)
def test_what_produces_or_feeds_what_is_judged_is_none(command: str, path: str) -> None:
    assert reading(command).is_feed(path)
    assert not reading(command).is_judge(path)


@pytest.mark.parametrize(
    "command",
    [
        "test -f src/roman.py",
        "[ -f src/roman.py ]",
        "grep -q Four src/roman.py",
        "ruff check src/roman.py",
        "sh -n src/roman.py",
        "pytest src/roman.py",
        "true # sh src/roman.py",
        "echo 'src/roman.py is fine'",
    ],
)
def test_what_is_looked_at_is_neither(command: str) -> None:
    found = reading(command)
    assert "src/roman.py" not in found.judges | found.feeds


@given(st.text(alphabet=st.sampled_from("ab ./-'\"`$(){}|&;<>=\\\n#!"), max_size=60))
def test_any_text_is_read(text: str) -> None:
    reading(text)


def test_a_makefile_says_what_the_recipes_of_a_target_run() -> None:
    makefile = (
        "include local.mk\nSRC = scripts\n.PHONY: test\nall: test\n"
        "test: lint ; @sh $(SRC)/one.sh\n\t@-sh ${SRC}/ci.sh\n"
        "lint:\n\tpython3 tools/lint.py\n\t$(MAKE) -C sub deep\nrun:\n\tpython3 app.py\n"
    )
    found = read("make", "Makefile", makefile, "test")
    assert {"local.mk", "scripts/one.sh", "scripts/ci.sh", "tools/lint.py"} <= found.judges
    assert "app.py" not in found.judges
    assert found.targets == {"test", "lint", "sub/deep"}
    assert CommandSource("make", ("sub/GNUmakefile", "sub/makefile", "sub/Makefile"), ("deep",)) in found.sources
    assert "all" in read("make", "Makefile", makefile).targets


def test_a_makefile_says_what_its_loops_patterns_and_functions_run() -> None:
    makefile = (
        "CHECKS = $(wildcard ci/*.sh)\nSKIPPED := $(shell cat ci/skipped)\n"
        "test: $(patsubst %.sh,%.ok,$(CHECKS))\n\t@$(foreach each,$(CHECKS),sh $(each) &&) true\n"
        "\t@for each in more/*.sh; do sh $${each}; done\n%.ok: %.sh\n\t@sh rules/check.sh\n"
    )
    found = read("make", "Makefile", makefile, "test")
    assert all(map(found.is_judge, ("ci/one.sh", "more/one.sh", "rules/check.sh")))
    assert not found.is_judge("other/one.sh")
    assert found.is_feed("ci/skipped")
    assert "%.ok" in found.targets


def test_a_program_feeds_itself_with_what_it_imports_and_names() -> None:
    python = "import os\nfrom values import WANT\nimport more.parts as parts, others\nopen('wanted.json')\n"
    found = read("code", "checks/accept.py", python)
    for path in ("checks/values.py", "values.py", "checks/more/parts.py", "others.py", "checks/wanted.json"):
        assert found.is_feed(path), path
    assert found.judges == frozenset()
    node = "const { want } = require('./values');\nimport x from '../lib/x.mjs';\n"
    found = read("code", "checks/accept.js", node)
    assert found.is_feed("checks/values.js")
    assert found.is_feed("lib/x.mjs")


def test_a_package_says_what_its_scripts_run() -> None:
    package = '{"scripts": {"pretest": "node prepare.js", "test": "sh ci/test.sh", "start": "node app.js"}}'
    [source] = reading("npm --prefix web run test").sources
    assert (source.paths, source.names) == (("web/package.json",), ("pretest", "test", "posttest"))
    found = read("package", "web/package.json", package, *source.names)
    assert found.judges == {"web/prepare.js", "web/ci/test.sh"}
    for broken in ("", "[]", '{"scripts": 1}', '{"scripts": {"test": 1}}', "[" * 100_000):
        assert read("package", "package.json", broken, "test") == CommandReading()


@pytest.mark.parametrize(
    ("kind", "path", "text", "judge"),
    [
        ("shell", "run.sh", "set -e\npython3 checks/inner.py\n", "checks/inner.py"),
        ("shell", "ci/run.sh", "sh inner.sh\n", "ci/inner.sh"),
        ("tox", "tox.ini", "[testenv]\ncommands =\n    python tools/check.py\n    pytest\n", "tools/check.py"),
        ("nox", "noxfile.py", 'session.run("python", "tools/check.py")\n', "tools/check.py"),
        ("just", "justfile", "test:\n    @sh ci/test.sh\n", "ci/test.sh"),
        ("pytest", "pytest.ini", "[pytest]\naddopts = -q -p tools.plug\n", "tools/plug.py"),
        ("pytest", "pyproject.toml", 'addopts = ["-p", "tools.plug"]\n', "tools/plug.py"),
        ("javascript", "jest.config.js", "module.exports = { setupFiles: ['<rootDir>/a/s.js'] };", "a/s.js"),
        ("javascript", "vitest.config.ts", 'test: { globalSetup: "./setup" }', "setup.ts"),
        ("javascript", ".mocharc.yml", "require: \n  - ./hooks.js\n", "hooks.js"),
    ],
)
def test_files_that_commands_read_name_judges(kind: Kind, path: str, text: str, judge: str) -> None:
    assert judge in read(kind, path, text).judges


def test_a_script_of_another_language_says_nothing() -> None:
    assert read("shell", "check", "#!/usr/bin/env python3\nimport check\nsh = 1\n") == CommandReading()


@given(st.text(max_size=200), st.sampled_from(get_args(Kind)))
def test_any_file_is_read(text: str, kind: Kind) -> None:
    read(kind, "a/b", text, "test")
