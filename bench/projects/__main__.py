"""Runs `fleet init` on generated projects: does the gate pass in the sandbox, and after how many commands?

    python -m bench.projects                 every project, with network access for setup
    python -m bench.projects uv cargo make-c these only
    python -m bench.projects --offline       projects whose setup works offline

Each project is written, committed and cloned. Then `fleet init --yes` and `fleet try` run in the clone. A project is
skipped if a program that it needs is missing. On Debian, `--install` installs packages from apt. State and
configuration are temporary, but homes are unchanged, because they contain tool chains.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from bench.projects import compiled_projects, other_projects, python_projects, web_projects
from bench.projects.project import Project
from scripts.frame import MET, MISSED, add_names, command_line, exit_with, machine, progress, say, temporary_folder

PROJECTS = {
    project.name: project
    for module in (python_projects, web_projects, compiled_projects, other_projects)
    for project in module.PROJECTS
}
PACKAGES = (
    *(
        "ruby",
        "ruby-minitest",
        "rake",
        "bundler",
        "php-cli",
        "php-xml",
        "php-mbstring",
        "phpunit",
        "composer",
        "golang-go",
    ),
    *(
        "gradle",
        "meson",
        "autoconf",
        "automake",
        "elixir",
        "cmake",
        "make",
        "gcc",
        "tcl",
        "default-jdk-headless",
        "python3-venv",
    ),
)
FLEET = (sys.executable, "-m", "fleet")
LIMIT_S = 1800
WANTED_GREEN, WANTED_COMMANDS = 0.9, 2
WHO = ("-c", "user.name=author", "-c", "user.email=author@localhost", "-c", "commit.gpgSign=false")


class Result(NamedTuple):
    """Result of one project."""

    project: Project
    verdict: str
    """`green`, `not tried: WHY`, or what was wrong."""
    commands: int = 0
    """Number of commands after the clone until `fleet try` passed."""
    seconds: float = 0.0
    gate: str = ""


def main() -> int:
    parser = command_line("bench.projects", __doc__)
    add_names(parser, "PROJECT", PROJECTS)
    parser.add_argument("--offline", action="store_true", help="only projects whose setup command works offline")
    parser.add_argument("--install", action="store_true", help="apt-get install the programs that projects need")
    args = parser.parse_args()
    if args.install:
        subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES], check=True)
    chosen = [PROJECTS[name] for name in args.names or PROJECTS]
    chosen = [project for project in chosen if not (args.offline and project.needs_network)]
    say(f"fleet init on {len(chosen)} projects of {len({each.kind for each in chosen})} kinds; {machine()}")
    with temporary_folder() as folder:
        results = list(_results(chosen, folder))
    return _summary(results)


def _results(projects: Iterable[Project], folder: Path) -> Iterator[Result]:
    author = Author(folder / "tools")
    for project in projects:
        progress(project.name)
        result = try_project(project, folder / project.name, author)
        commands = f"{result.commands} commands" if result.commands else ""
        came = f"{result.verdict:<12} {result.seconds:5.0f} s  {commands:<10}  {result.gate}"
        say(f"{project.name:<16} {project.kind:<44} {came}")
        yield result


def _summary(results: list[Result]) -> int:
    tried = [result for result in results if not result.verdict.startswith("not tried")]
    green = [result for result in tried if result.verdict == "green"]
    kinds = {result.project.kind for result in green}
    most = max((result.commands for result in green), default=0)
    untried = len(results) - len(tried)
    say(f"green: {len(green)} of {len(tried)} projects tried, of {len(kinds)} kinds; not tried: {untried}")
    say(f"commands typed after git clone until `fleet try` was green: at most {most}; {machine()}")
    is_met = bool(tried) and len(green) >= WANTED_GREEN * len(tried) and most <= WANTED_COMMANDS
    return MET if is_met else MISSED


def try_project(project: Project, folder: Path, author: "Author") -> Result:
    """Write the project, clone it, and type the two commands."""
    missing = [name for name in project.needs if shutil.which(name) is None]
    if missing:
        return Result(project, f"not tried: there is no {missing[0]} on this machine")
    problem = author.write(project, folder / "origin")
    if problem:
        return Result(project, f"not tried: {problem}")
    clone = folder / "clone"
    _git(folder, "clone", "-q", str(folder / "origin"), str(clone))
    _write(clone, project.beside)
    begun = monotonic()
    answer = type_command(clone, folder, "init", "--yes", "--json")
    view = json.loads(answer.stdout) if answer.stdout else {}
    if answer.returncode != 0:
        causes = "; ".join(line for tried in view.get("tried", ()) for line in tried["causes"][:2])
        return Result(project, "red", 0, monotonic() - begun, causes or answer.stderr.strip()[-200:])
    trial = type_command(clone, folder, "try", "--json")
    seconds = monotonic() - begun
    verdict = json.loads(trial.stdout)["verdict"] if trial.stdout else trial.stderr.strip()[-200:]
    left_out = f" (left out: {', '.join(view['left_out'])})" if view["left_out"] else ""
    return Result(project, f"{verdict}{left_out}", 2, seconds, view["gate"])


def type_command(clone: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run fleet in the clone with a separate configuration and state."""
    env = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config"), "FLEET_STATE_DIR": str(folder / "state")}
    return subprocess.run(
        [*FLEET, *arguments], cwd=clone, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


class Author:
    """Writes projects as their authors did, with the tools that write lock files."""

    def __init__(self, tools: Path) -> None:
        self._tools = tools

    def write(self, project: Project, origin: Path) -> str:
        """Commit the project at `origin`. Returns why that was not possible."""
        origin.mkdir(parents=True)
        _write(origin, project.files)
        if project.tools:
            self._install(project.tools)
        path = f"{self._tools}/bin{os.pathsep}{os.environ['PATH']}"
        for command in project.author:
            answer = subprocess.run(
                command,
                cwd=origin,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            if answer.returncode != 0:
                return (
                    f"its author could not run {' '.join(command)}: {(answer.stderr or answer.stdout).strip()[-200:]}"
                )
        _git(origin, "init", "-q", "--initial-branch=main")
        _git(origin, "add", "-A")
        _git(origin, *WHO, "commit", "-q", "-m", "A project")
        return ""

    def _install(self, names: Iterable[str]) -> None:
        if not self._tools.exists():
            subprocess.run([sys.executable, "-m", "venv", str(self._tools)], check=True)
        subprocess.run([str(self._tools / "bin" / "pip"), "install", "-q", *names], check=True)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _git(folder: Path, *arguments: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


if __name__ == "__main__":
    exit_with(main)
