"""`fleet init` as it is typed: what it writes, what it refuses, and that `fleet try` agrees with it."""

import tomllib
from pathlib import Path

from tests.e2e.stage import Stage, untouched
from tests.worktrees.conftest import git, make_repository

USAGE = 2
RED, GREEN = "test:\n\techo 'E   AssertionError: 1 == 2'; false\n", "test:\n\techo '1 passed'\n"


def test_what_was_green_is_written_and_the_gate_is_green_in_two_commands(stage: Stage) -> None:
    root = make_repository(stage.room / "project", {"Makefile": GREEN})
    done = stage.fleet("init", at=root).ended(0)
    done.says("trying  make test", "green after", f"wrote {root}/fleet.toml: the gate is 'make test'")
    stage.fleet("try", at=root).ended(0).says("GREEN")
    before = (root / "fleet.toml").read_bytes()
    stage.fleet("init", at=root).ended(USAGE).says("exists", "fleet try", "--force")
    stage.fleet("init", "--force", at=root).ended(0)
    assert (root / "fleet.toml").read_bytes() == before
    assert tomllib.loads(before.decode())["checks"] == {"gate": "make test"}


def test_where_nothing_is_green_nothing_is_written_and_the_lines_that_matter_are_shown(stage: Stage) -> None:
    root = make_repository(stage.room / "project", {"Makefile": RED})
    with untouched(root):
        done = stage.fleet("init", at=root).ended(1)
        done.says(
            "red after", "AssertionError: 1 == 2", "no candidate passed, so fleet.toml was not written", "--no-try"
        )
        view = stage.fleet("init", "--json", at=root).ended(1).json
    assert not (root / "fleet.toml").exists()
    assert (view["written"], view["green"], view["gate"], view["text"]) == (False, False, "", "")
    assert [(tried["gate"], tried["verdict"]) for tried in view["tried"]] == [("make test", "red")]


def test_what_needs_the_network_is_skipped_without_a_yes_and_your_configuration_stays(stage: Stage) -> None:
    files = {"requirements.txt": "no-such-package\n", "test_a.py": "import no_such_package\nimport unittest\n"}
    root = make_repository(stage.room / "project", files)
    stage.fleet("init", at=root).ended(1).says("skipped .venv/bin/python -m unittest", "use --yes")
    assert not list(Path(stage.environment["HOME"]).rglob("config.toml"))


def test_without_trying_nothing_runs(stage: Stage) -> None:
    root = make_repository(stage.room / "project", {"Makefile": RED})
    with untouched(root):
        stage.fleet("init", "--dry-run", at=root).ended(0).says(
            "would try  make test", "would write", 'gate = "make test"'
        )
    assert not (root / "fleet.toml").exists()
    stage.fleet("init", "--no-try", at=root).ended(0).says("next: run `fleet try`")
    assert tomllib.loads((root / "fleet.toml").read_text(encoding="utf-8"))["checks"] == {"gate": "make test"}
    empty = make_repository(stage.room / "empty", {"README.md": "x"})
    stage.fleet("init", at=empty).ended(0).says("no test command found")
    assert not stage.state.exists()


def test_where_a_fleet_toml_can_not_be_it_says_so(stage: Stage) -> None:
    root = make_repository(stage.room / "project", {"Makefile": GREEN})
    git(stage.room, "clone", "--quiet", "--bare", str(root), "bare.git")
    stage.fleet("init", at=stage.room / "bare.git").ended(USAGE).says("is a bare repository", "in a clone of it")
    stage.fleet("init", at=stage.room).ended(USAGE).says("is not in a git repository")
    elsewhere = stage.room / "elsewhere.toml"
    elsewhere.write_text("mine", encoding="utf-8")
    (root / "fleet.toml").symlink_to(elsewhere)
    stage.fleet("init", "--force", at=root).ended(USAGE).says("is a symbolic link")
    assert elsewhere.read_text(encoding="utf-8") == "mine"
