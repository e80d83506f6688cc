"""What is shipped and what is installed: pins with hashes, no registry, a reason for each dependency."""

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import pytest

LOCKS_WITH_HOSTS = {"uv.lock", "pylock.toml", "poetry.lock", "Pipfile.lock", "package-lock.json", "yarn.lock"}
_PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==\S+(?: ; [^\\]+)? \\$")
_HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_HOME = re.compile(r"/(?:home|Users)/(?P<user>[A-Za-z0-9._-]+)")
_NOBODY = {"user", "you", "u", "me", "worker", "someone"}


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def pins(root: Path) -> list[str]:
    """All that is ever installed: what tests need, Ray, a collector."""
    files = (root / "requirements" / f"{name}.txt" for name in ("dev", "ray", "collector"))
    return [line for file in files for line in file.read_text().splitlines()]


def test_no_registry_stands_in_a_committed_file(files: Mapping[str, str]) -> None:
    named = [path for path in files if path == "pyproject.toml" or path.startswith("requirements/")]
    assert len(named) > 1
    assert [path for path in named if "://" in files[path]] == []
    assert [path for path in files if Path(path).name in LOCKS_WITH_HOSTS] == []


def test_requirements_are_pins_with_hashes_and_nothing_else(pins: list[str]) -> None:
    assert [line for line in pins if not (_PIN.match(line) or _HASH.match(line))] == []
    without = [
        line
        for line, following in zip(pins, [*pins[1:], ""], strict=True)
        if _PIN.match(line) and not _HASH.match(following)
    ]
    assert without == []


def test_every_dependency_is_pinned(project: dict[str, Any], pins: list[str]) -> None:
    pinned = {match["name"] for line in pins if (match := _PIN.match(line))}
    wanted = {
        _NAME.match(requirement)[0].lower()  # type: ignore[index] # a requirement begins with its name
        for requirement in (
            *project["project"]["dependencies"],
            *(line for group in project["dependency-groups"].values() for line in group if isinstance(line, str)),
            *chain.from_iterable(project["project"]["optional-dependencies"].values()),
        )
    }
    assert wanted - pinned == set()


def test_every_dependency_has_its_reason(root: Path) -> None:
    text = (root / "pyproject.toml").read_text()
    lines = [line for name in ("dependencies", "dev", "docs", "bedrock") for line in _list_lines(text, name)]
    assert len(lines) > 10
    assert [line for line in lines if not re.search(r'["}], +# \S+', line)] == []


def test_every_rule_that_is_switched_off_has_its_reason(root: Path) -> None:
    lines = list(_list_lines((root / "pyproject.toml").read_text(), "ignore"))
    assert len(lines) > 3
    assert [line for line in lines if not re.search(r", +# \S+", line)] == []


def test_no_committed_file_knows_a_home_or_this_folder(root: Path, files: Mapping[str, str]) -> None:
    wrong = [
        f"{path}: {place}"
        for path, text in files.items()
        for place in {match[0] for match in _HOME.finditer(text) if match["user"] not in _NOBODY}
        | ({str(root)} if len(root.parts) > 2 and re.search(re.escape(str(root)) + r"(?![\w-])", text) else set())
    ]
    assert wrong == []


def test_a_built_wheel_brings_its_defaults_and_finds_them(root: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    built = subprocess.run(build, cwd=root, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "installed")
    tops = {name.partition("/")[0] for name in names if not name.partition("/")[0].endswith(".dist-info")}
    assert tops == {"fleet"}, "any other name may be taken by another distribution"
    below = {name.split("/")[2] for name in names if name.startswith("fleet/_packages/")}
    assert below == {"agents", "worktrees", "dashboards"}
    ask = "import sys; sys.path.insert(0, sys.argv[1]); from fleet.config.load import defaults_file as f; print(f())"
    told = subprocess.run(
        [sys.executable, "-c", ask, str(tmp_path / "installed")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(told.stdout.strip()) == tmp_path / "installed" / "fleet" / "config.toml"


def _list_lines(text: str, name: str) -> Iterator[str]:
    """The lines of a list in the project file, as they are written."""
    _, _, rest = text.partition(f"\n{name} = [\n")
    return takewhile(lambda line: line != "]", rest.splitlines())
