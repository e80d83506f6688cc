"""The repository that the demo's fleet works on: stubs, a specification that fails, a little history, fixed names.

Made with the git program and nothing of the user's configuration. What will be planned for it is not known here.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.demo.library import Module, text

NAME, EMAIL = "Ada Example", "ada@example.invalid"
FIRST_COMMIT = 1_767_225_600  # 1 January 2026; the history is the same at every run

_AGENTS = """# For whoever works here

- Python 3.11, the standard library only.
- The signatures in the stubs are the interface: keep them. Delete what a stub raises, write what its text says.
- Every module has its specification in `tests/`. Run one with `python3 -m unittest tests.test_NAME`.
- `python3 -m tests` runs the specification of everything that is written so far; `--all` of everything there is.
- Change your own module only.
"""

_README = """# textkit

Small tools for text. {count} modules, each with its specification:

{modules}

`python3 -m tests` tells how far we are.
"""

_GATE = '''"""The specification of every module that is written; with `--all`, of those that are not yet as well."""

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
    _commit(folder, 1, "Say how to work here", {"AGENTS.md": _AGENTS, "tests/__main__.py": _GATE})
    _commit(folder, 2, "Sketch the modules: signatures only", {one.path: one.stub for one in modules})
    _commit(folder, 3, "Specify every module", {one.test_path: one.test for one in modules})
    _commit(folder, 4, "List the modules", {"README.md": readme(modules)})


def readme(modules: Sequence[Module]) -> str:
    lines = "\n".join(f"- `textkit.{one.name}`: {one.says}." for one in modules)
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
