"""The lines of a failed command's output that matter, and what they lead to."""

import time

import pytest

from fleet.core.base.output import LONGEST_LINE, advice, cause_of, key_lines, outdated

PYTEST = """\
==================================== ERRORS ====================================
_____________________ ERROR collecting tests/test_calc.py ______________________
ImportError while importing test module '/repo/tests/test_calc.py'.
tests/test_calc.py:1: in <module>
    from calc import add
E   ModuleNotFoundError: No module named 'calc'
=========================== short test summary info ============================
ERROR tests/test_calc.py
!!!!!!!!!!!!!!!!!!!! Interrupted: 1 error during collection !!!!!!!!!!!!!!!!!!!!
1 error in 0.16s
"""
NODE = """\
node:internal/modules/esm/resolve:873
  throw new ERR_MODULE_NOT_FOUND(packageName, fileURLToPath(base), null);
Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'left-pad' imported from /repo/a.test.js
    at packageResolve (node:internal/modules/esm/resolve:873:9)
# tests 1
# pass 0
# fail 1
"""
NPM = """\
npm error code EAI_AGAIN
npm error syscall getaddrinfo
npm error errno EAI_AGAIN
npm error request to https://packages.example/left-pad failed
npm error A complete log of this run can be found in: /home/worker/.npm/_logs/x.log
"""


@pytest.mark.parametrize(
    ("line", "kind", "subject"),
    [
        ("bash: line 1: cargo: command not found", "program", "cargo"),
        ("sh: 1: npm: not found", "program", "npm"),
        ("zsh: command not found: just", "program", "just"),
        ("make: cargo: No such file or directory", "program", "cargo"),
        ("env: \u2018node\u2019: No such file or directory", "program", "node"),
        ('go: exec: "gcc": executable file not found in $PATH', "program", "gcc"),
        ("Error: spawn tsc ENOENT", "program", "tsc"),
        ("/usr/bin/python3: No module named pytest", "python", "pytest"),
        ("E   ModuleNotFoundError: No module named 'calc.core'", "python", "calc.core"),
        ("Error: Cannot find module 'express'", "node", "express"),
        ("a.go:3:8: no required module provides package github.com/a/b; to add it:", "package", "github.com/a/b"),
        ("error[E0463]: can't find crate for `serde`", "package", "serde"),
        ("error: package `clap` cannot be built because it requires rustc 1.80 or newer", "old", "cargo"),
        ("error: lock file version 4 requires `-Znext-lockfile-bump`", "old", "cargo"),
        ("npm error code EBADENGINE", "old", "node"),
        ('error x@1.0.0: The engine "node" is incompatible with this module.', "old", "node"),
        ("go: go.mod requires go >= 1.24 (running go 1.19; GOTOOLCHAIN=local)", "old", "go"),
        ("ERROR: Package 'x' requires a different Python: 3.9.2 not in '>=3.11'", "old", "python3"),
        ("error: release version 21 not supported", "old", "java"),
        ("Your Ruby version is 2.7.4, but your Gemfile specified 3.3", "old", "ruby"),
        ("npm error code EAI_AGAIN", "network", ""),
        ("fatal: unable to access 'https://example.org/': Could not resolve host: example.org", "network", ""),
        ("OSError: [Errno 30] Read-only file system: '/var/x'", "read_only", ""),
        ("Error: connect ECONNREFUSED 127.0.0.1:5432", "service", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '.env'", "file", ".env"),
        ("[ended by the sandbox: 9000 MB of memory]", "memory", ""),
        ("Error: ENOSPC: no space left on device", "space", ""),
        ("the page was not found", None, ""),
        ("assert 1 == 2", None, ""),
    ],
)
def test_a_line_names_its_cause(line: str, kind: str | None, subject: str) -> None:
    cause = cause_of(line)
    assert (kind, subject) == (None, "") if cause is None else (cause.kind, cause.subject) == (kind, subject)


def test_the_cause_is_found_where_the_last_lines_do_not_have_it() -> None:
    assert key_lines(PYTEST)[0] == "E   ModuleNotFoundError: No module named 'calc'"
    assert any("Cannot find package 'left-pad'" in line for line in key_lines(NODE))
    assert key_lines(NPM)[0] == "npm error code EAI_AGAIN"


def test_the_first_failures_are_shown_where_no_cause_is_named() -> None:
    failures = "".join(f"E       assert {n} == {n + 1}\n" for n in range(100))
    assert key_lines(f"collected\n{failures}100 failed\n") == tuple(f"E       assert {n} == {n + 1}" for n in range(6))


def test_the_last_lines_are_shown_where_nothing_is_known() -> None:
    assert key_lines("\n".join(f"step {n}" for n in range(20)) + "\n\n")[-1] == "step 19"
    assert key_lines("") == ()


def test_colours_are_removed_and_long_lines_cut() -> None:
    assert key_lines("\x1b[31mError: \x1b[1mno\x1b[0m") == ("Error: no",)
    assert len(key_lines("Error: " + "x" * 10_000)[0]) == LONGEST_LINE


def test_what_to_do_is_said_once_for_each_cause() -> None:
    [text] = advice(("bash: line 1: cargo: command not found", "make: cargo: No such file or directory"))
    assert 'box.tool_chains = ["rustup"]' in text
    assert "worktrees.setup_network" in advice(key_lines(NPM))[0]
    assert advice(("E  assert 1 == 2",)) == ()


def test_a_missing_file_is_not_blamed_where_something_else_is() -> None:
    [text] = advice(("sh: 1: npm: not found", "cat: out.txt: No such file or directory"))
    assert text.startswith("npm is not visible in the sandbox")


def test_hostile_output_takes_no_longer_than_its_size() -> None:
    begun = time.process_time()
    for text in ("x" * 2_000_000, "\n" * 2_000_000, ": " * 1_000_000, "\x1b[" * 1_000_000, "a: \n" * 500_000):
        assert len(key_lines(text)) <= 10
    assert time.process_time() - begun < 30


def test_a_program_that_is_too_old_is_named_with_the_tool_chain_that_may_have_a_newer_one() -> None:
    output = "Compiling x\nerror: rustc 1.63.0 is not supported by the following package:\n"
    old = outdated(output)
    assert old is not None
    assert (old.subject, old.line) == ("cargo", output.splitlines()[1])
    [text] = advice(key_lines(output))
    assert 'box.tool_chains = ["rustup"]' in text
    assert outdated("npm warn EBADENGINE Unsupported\n2 tests failed\n") is None
