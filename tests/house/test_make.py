"""The commands of this repository: what `make` prints, and the scripts behind it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

WANTED = {"setup", "demo", "demo-100", "test", "bench", "lint", "format", "types", "check", "lock", "clean"}


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    bare = {"PATH": os.environ["PATH"], "HOME": str(cwd), **environment}
    return subprocess.run(
        command, cwd=cwd, env=bare, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_make_alone_lists_every_target_with_a_line_each(root: Path) -> None:
    done = run("make", cwd=root)
    listed = dict(re.findall(r"^ +make (\S+) +(\S.*)$", done.stdout, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", (root / "Makefile").read_text(), re.MULTILINE)
    assert done.returncode == 0
    assert phony
    assert set(listed) == set(phony[1].split())
    assert set(listed) >= WANTED


def test_a_missing_python_is_named_with_what_to_do(root: Path, tmp_path: Path) -> None:
    done = run(str(root / "scripts/venv"), "python-that-is-not", ".venv", "none.txt", cwd=tmp_path)
    assert done.returncode == 1
    assert "no python-that-is-not on PATH" in done.stderr
    assert "3.11 or newer" in done.stderr


def test_an_old_python_is_named_with_its_version(root: Path, tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2 && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = run(str(root / "scripts/venv"), str(old), ".venv", "none.txt", cwd=tmp_path)
    assert done.returncode == 1
    assert "is Python 3.9.2; fleet needs 3.11 or newer" in done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("user", ["0", "1000"])
def test_a_missing_bubblewrap_stops_nothing_and_is_named(root: Path, tmp_path: Path, user: str) -> None:
    """If it cannot be installed: without the permission, or because apt-get fails."""
    programs(tmp_path, {"sh": None, "id": f"echo {user}", "apt-get": "exit 1"})
    done = run("/bin/sh", str(root / "scripts/bubblewrap"), cwd=tmp_path, PATH=str(tmp_path))
    assert done.returncode == 0
    assert "apt-get install -y bubblewrap" in done.stderr


def test_root_installs_bubblewrap(root: Path, tmp_path: Path) -> None:
    programs(tmp_path, {"sh": None, "id": "echo 0", "apt-get": 'echo "$@" >>"$HOME/calls"'})
    done = run("/bin/sh", str(root / "scripts/bubblewrap"), cwd=tmp_path, PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "calls").read_text().splitlines() == ["update -qq", "install -y -qq bubblewrap"]


def test_missing_tools_stop_nothing_and_are_named(root: Path, tmp_path: Path) -> None:
    programs(tmp_path, {"sh": None, "id": "echo 1000", "awk": None, "rm": None, "mkdir": None, "apt-get": "exit 1"})
    folder = tmp_path / "tools"
    tools = (str(root / "scripts/tools"), str(folder), "prometheus", "chromium-headless-shell")
    done = run("/bin/sh", *tools, cwd=tmp_path, PATH=str(tmp_path))
    assert (done.returncode, "prometheus chromium-headless-shell" in done.stderr) == (0, True)
    assert not (folder / ".complete").exists()


def test_tools_are_unpacked_with_the_libraries_they_lack_and_nothing_is_installed(root: Path, tmp_path: Path) -> None:
    lacking = (
        "Inst libjs-jquery (1)\nInst libharfbuzz0b (2)\nInst fonts-x (1)\nInst prometheus (2)\nConf prometheus (2)"
    )
    download = 'for package in "$@"; do case "$package" in -*|download) ;; *) : >"$package.deb";; esac; done'
    apt = f'echo "$@" >>"$HOME/calls"; case "$1" in install) printf "{lacking}\\n";; download) {download};; esac'
    real = dict.fromkeys(("sh", "awk", "cat", "mkdir", "rm", "id"))
    programs(tmp_path, {**real, "apt-get": apt, "dpkg": 'mkdir -p "$3/usr"; : >"$3/usr/$2"'})
    tools = (str(root / "scripts/tools"), str(tmp_path / "tools"), "prometheus")
    for _ in range(2):  # the second run does nothing
        done = run("/bin/sh", *tools, cwd=tmp_path, PATH=str(tmp_path))
        assert (done.returncode, done.stderr) == (0, "")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["install -s --no-install-recommends prometheus", "download -qq libharfbuzz0b prometheus"]
    unpacked = sorted(path.name for path in (tmp_path / "tools/usr").iterdir())
    assert unpacked == ["libharfbuzz0b.deb", "prometheus.deb"]


def test_bare_keeps_keys_settings_and_proxies_from_a_command(root: Path, tmp_path: Path) -> None:
    hidden = (
        "ANTHROPIC_API_KEY",
        "CLAUDE_CODE_X",
        "FLEET_RUN_WORKERS",
        "https_proxy",
        "NO_PROXY",
        "MAKEFLAGS",
        "PYTHONDONTWRITEBYTECODE",
        "GIT_DIR",
    )
    kept = {"LANG": "C.UTF-8", "KEPT": "two\nlines ANTHROPIC_NOT=a", "TERM": "dumb"}
    done = run(str(root / "scripts/bare"), "env", "-0", cwd=tmp_path, **dict.fromkeys(hidden, "x"), **kept)
    seen = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    assert [name for name in hidden if name in seen] == []
    assert {name: seen[name] for name in kept} == kept


def test_bare_passes_arguments_and_exit_codes_through(root: Path, tmp_path: Path) -> None:
    done = run(str(root / "scripts/bare"), "sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "a b", "*", "", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "a b|*||")


def test_scripts_can_be_executed(root: Path) -> None:
    files = (path for path in (root / "scripts").iterdir() if path.is_file() and path.suffix != ".py")
    scripts = [root / ".ci" / "run", *files]
    assert [path.name for path in scripts if not os.access(path, os.X_OK)] == []


def programs(folder: Path, bodies: dict[str, str | None]) -> None:
    """Fill a folder for PATH: small scripts, or a link to the real program for those without a body."""
    for name, body in bodies.items():
        if body is None:
            (folder / name).symlink_to(str(shutil.which(name)))
        else:
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o755)


def test_the_pythons_of_this_machine_are_listed_oldest_first_and_one_of_each_version(
    root: Path, tmp_path: Path
) -> None:
    """Old ones, and those that cannot make virtual environments, are not listed."""
    says = {
        "first/python3": "echo 003.012.001 first",
        "first/python3.9": "exit 0",
        "second/python3.12": "echo 003.012.001 second",
        "second/python3.11": "echo 003.011.002 second",
        "home/.pyenv/versions/3.13.0/bin/python3": "echo 003.013.000 pyenv",
        "second/python3.14": "exit 1",
        "second/python3.11-config": "echo 003.015.000 config",
    }
    for path, body in says.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        programs((tmp_path / path).parent, {Path(path).name: body})
    programs(tmp_path / "first", dict.fromkeys(("sh", "tr", "sort", "cut")))
    path = f"{tmp_path}/first:{tmp_path}/second"
    done = run("/bin/sh", str(root / "scripts/pythons"), cwd=tmp_path, PATH=path, HOME=str(tmp_path / "home"))
    assert done.stdout.split() == ["second", "first", "pyenv"]


def test_another_python_makes_another_environment(root: Path, tmp_path: Path) -> None:
    programs(tmp_path, {"new": 'echo "$@" >>calls; echo Python 3.14.7'})
    (tmp_path / "venv/bin").mkdir(parents=True)
    programs(tmp_path / "venv/bin", {"python": "echo Python 3.11.2"})
    run(str(root / "scripts/venv"), str(tmp_path / "new"), "venv", "none.txt", cwd=tmp_path)
    assert "-m venv --clear venv" in (tmp_path / "calls").read_text().splitlines()
