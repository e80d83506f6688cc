"""The repository that the demo's fleet works on: stubs, a failing specification, a short history, fixed names.

Made with the git program, without the user's configuration. The plan for it is not known here.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.demo.library import Module, text

NAME, EMAIL = "Ada Example", "ada@example.invalid"
FIRST_COMMIT = 1_767_225_600  # 1 January 2026; the history is the same in every run

_AGENTS_FILE = """# For contributors

- Python 3.11, the standard library only.
- The signatures in the stubs are the interface: keep them. Replace what a stub raises with what its docstring says.
- Every module has its specification in `tests/`. Run one with `python3 -m unittest tests.test_NAME`.
- `python3 -m tests` runs the specifications of all modules written so far; with `--all`, of every module.
- Change only your own module.
"""

_README = """# textkit

Small tools for text. {count} modules, each with its specification:

{modules}

`python3 -m tests` shows the progress.
"""

_GATE = '''"""The specification of every module written so far; with `--all`, of every module."""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def written(name: str) -> bool:
    return "raise NotImplementedError" not in (ROOT / "textkit" / f"{name}.py").read_text(encoding="utf-8")


def main() -> int:
    names = sorted(path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("test_*.py"))
    chosen = [name for name in names if "--all" in sys.argv[1:] or written(name)]
    suite = unittest.defaultTestLoader.loadTestsFromNames([f"tests.test_{name}" for name in chosen])
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    print(f"{sum(map(written, names))} of {len(names)} modules are written")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
'''


def build_repository(folder: Path, modules: Sequence[Module]) -> None:
    """A new repository in `folder`, which must be empty or not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    start = {
        ".gitignore": "__pycache__/\n*.pyc\n",
        "README.md": "# textkit\n\nSmall tools for text.\n",
        "textkit/__init__.py": '"""Small tools for text."""\n',
        "textkit/lines.py": text("lines"),
        "tests/__init__.py": "",
        "tests/test_lines.py": text("test_lines"),
    }
    _commit(folder, 0, "Start textkit with lines of text", start)
    _commit(folder, 1, "Say how to work here", {"AGENTS.md": _AGENTS_FILE, "tests/__main__.py": _GATE})
    _commit(folder, 2, "Sketch the modules: signatures only", {each.path: each.stub for each in modules})
    _commit(folder, 3, "Specify every module", {each.test_path: each.test for each in modules})
    _commit(folder, 4, "List the modules", {"README.md": readme(modules)})


def readme(modules: Sequence[Module]) -> str:
    lines = "\n".join(f"- `textkit.{each.name}`: {each.says}." for each in modules)
    return _README.format(count=len(modules) + 1, modules=lines)


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")


def _commit(folder: Path, number: int, message: str, files: Mapping[str, str]) -> None:
    write_files(folder, files)
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", message, at=FIRST_COMMIT + 86_400 * number)


def _git(folder: Path, *arguments: str, at: int = FIRST_COMMIT) -> None:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in _signature(at).items()},
    }
    subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, stdin=subprocess.DEVNULL)


def _signature(at: int) -> dict[str, str]:
    return {"NAME": NAME, "EMAIL": EMAIL, "DATE": f"{at} +0000"}
