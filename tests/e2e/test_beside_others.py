"""The wheel beside a distribution with our packages' names: whatever is installed first, both work, and both can go."""

import hashlib
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

FOREIGN = {
    "agents/__init__.py": "class Agent:\n    name = 'theirs'\n",
    "agents/workers/__init__.py": "raise ImportError('a foreign package was imported')\n",
    "worktrees/__init__.py": "raise ImportError('a foreign package was imported')\n",
    "dashboards/__init__.py": "raise ImportError('a foreign package was imported')\n",
}
THEIRS = "from agents import Agent; print(Agent.name)"
ROOT = Path(__file__).parents[2]
OURS = (("explain-policy", "--json"), ("plans", "list"))  # they import all of our packages


@dataclass(frozen=True)
class Environment:
    """A virtual environment without pip; what it lacks of our dependencies is found in the tests' own."""

    folder: Path
    wheels: Mapping[str, Path]

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def pip(self, *arguments: str) -> None:
        quiet = ("--disable-pip-version-check", "--quiet", "--no-input", "--python", self.python)
        done = subprocess.run(
            [sys.executable, "-m", "pip", *quiet, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def install(self, name: str) -> None:
        self.pip("install", "--no-index", "--no-deps", str(self.wheels[name]))

    def uninstall(self, name: str) -> None:
        self.pip("uninstall", "--yes", name)

    def run(self, *command: str, at: Path, **more: str) -> str:
        home = self.folder.parent
        clean = {"PATH": os.environ["PATH"], "HOME": str(home), "FLEET_STATE_DIR": str(home / "state"), **more}
        done = subprocess.run(command, cwd=at, env=clean, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fleet_works(self, at: Path, **more: str) -> None:
        for verb in OURS:
            self.run(str(self.folder / "bin" / "fleet"), *verb, at=at, **more)
        self.run(self.python, "-m", "fleet", *OURS[0], at=at, **more)

    def theirs_works(self, at: Path, first: str = "") -> None:
        assert self.run(self.python, "-c", first + THEIRS, at=at) == "theirs\n"

    @property
    def site(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    @contextmanager
    def imported_at_the_start(self, name: str) -> Iterator[None]:
        """As by a program that instruments others and starts with Python."""
        path = self.site / "zzz.pth"
        path.write_text(f"import {name}\n", encoding="utf-8")
        yield
        path.unlink()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (ours,) = folder.glob("worktree_fleet-*.whl")
    return {"worktree-fleet": ours, "openai-agents": _wheel(folder, FOREIGN)}


@pytest.fixture
def environment(wheels: dict[str, Path], tmp_path: Path) -> Environment:
    made = Environment(tmp_path / "venv", wheels)
    venv.create(made.folder, with_pip=False)
    (made.site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return made


@pytest.mark.thorough
@pytest.mark.parametrize("order", [("worktree-fleet", "openai-agents"), ("openai-agents", "worktree-fleet")])
def test_both_work_and_either_can_be_removed(environment: Environment, order: tuple[str, str], tmp_path: Path) -> None:
    for name in order:
        environment.install(name)
    environment.theirs_works(tmp_path)
    environment.theirs_works(tmp_path, first="import fleet; ")
    environment.fleet_works(tmp_path)
    with environment.imported_at_the_start("agents"):
        environment.fleet_works(tmp_path)
    environment.uninstall(order[1])
    if order[1] == "openai-agents":
        environment.fleet_works(tmp_path)
    else:
        environment.theirs_works(tmp_path)
        assert not (environment.folder / "bin" / "fleet").exists()


@pytest.mark.thorough
def test_it_works_in_a_project_with_folders_of_these_names(environment: Environment, tmp_path: Path) -> None:
    environment.install("worktree-fleet")
    project = tmp_path / "project"
    for path, text in FOREIGN.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text, encoding="utf-8")
    environment.fleet_works(project)
    environment.fleet_works(tmp_path, PYTHONPATH=str(project))


def _wheel(folder: Path, files: Mapping[str, str]) -> Path:
    """The smallest distribution that holds these files."""
    info = "openai_agents-0.0.1.dist-info"
    content = {
        **files,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: openai-agents\nVersion: 0.0.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / "openai_agents-0.0.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        record = ""
        for name, text in content.items():
            archive.writestr(name, text)
            digest = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(text.encode())}\n"
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path
