"""A first `fleet.toml` for a repository: the few keys that matter, with the test command that was found in it."""

import json
from collections.abc import Callable
from pathlib import Path

TEMPLATE = """\
# What fleet should know about this repository. Every key, with its default: `fleet config show`.
# This file is read from your checkout. What concerns your machine (keys, sandbox, other folders) belongs into your own
# file or on the command line; such keys are refused here.

[checks]
# The command that must pass on the integration branch after every landing. {found}
gate = {gate}

# Names that plans may use instead of commands.
# [checks.named]
# lint = "ruff check ."

[run]
# Agents at once, and dollars a run may spend.
# workers = 16
# budget_dollars = 10.0

[box]
# Folders of the repository that are not in git but needed to run its tests; workers can read them, not change them.
{box}
"""


def scaffold(root: Path) -> tuple[str, str]:
    """The text of a `fleet.toml` for the repository at `root`, and what was found."""
    gate = _gate(root)
    venv = next((name for name in (".venv", "venv") if (root / name / "bin").is_dir()), None)
    if venv is not None:
        box = f'read_only = ["{{repo}}/{venv}"]\npath = ["{{repo}}/{venv}/bin"]'
    else:
        box = '# read_only = ["{repo}/.venv"]\n# path = ["{repo}/.venv/bin"]'
    found = f"the gate is {gate!r}" if gate else "no test command was found; fill in `gate`"
    note = "Found in this repository." if gate else "None was found: fill it in."
    return TEMPLATE.format(gate=json.dumps(gate), found=note, box=box), found


def _gate(root: Path) -> str:
    for look in LOOKS:
        if command := look(root):
            return command
    return ""


def _python(root: Path) -> str:
    marks = ("pytest.ini", "conftest.py", "tests/conftest.py")
    configured = any("pytest" in _text(root / name) for name in ("pyproject.toml", "setup.cfg", "tox.ini"))
    if configured or any((root / mark).is_file() for mark in marks):
        return "python3 -m pytest -q"
    named = [*root.glob("tests/test_*.py"), *root.glob("test_*.py")]
    if not named:
        return ""
    if any("import pytest" in _text(path) for path in named):
        return "python3 -m pytest -q"
    if not any(path.parent.name == "tests" for path in named):
        return "python3 -m unittest"
    package = " -t ." if (root / "tests" / "__init__.py").is_file() else ""  # without it, discovery finds nothing
    return f"python3 -m unittest discover -s tests{package}"


def _node(root: Path) -> str:
    try:
        scripts = json.loads(_text(root / "package.json") or "{}").get("scripts", {})
    except (ValueError, AttributeError):
        return ""
    return "npm test" if isinstance(scripts, dict) and "test" in scripts else ""


def _make(root: Path) -> str:
    return "make test" if "\ntest:" in "\n" + _text(root / "Makefile") else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


LOOKS: tuple[Callable[[Path], str], ...] = (
    _python,
    lambda root: "cargo test" if (root / "Cargo.toml").is_file() else "",
    lambda root: "go test ./..." if (root / "go.mod").is_file() else "",
    _node,
    lambda root: "mvn -q test" if (root / "pom.xml").is_file() else "",
    _make,
)
