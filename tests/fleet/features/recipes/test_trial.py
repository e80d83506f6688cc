"""`try_out`: set-up and gate in the box on a commit, as in a run, without leaving anything behind."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fleet.config.load import load_config
from fleet.errors import FleetError
from fleet.features.recipes.init_view import TrialView
from fleet.features.recipes.trials import TrialOrder, try_out
from tests.worktrees.conftest import fingerprint, git, make_repository, path_without

pytestmark = pytest.mark.anyio


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", {"a.txt": "a\n", ".gitignore": "deps/\n.env\n"})


async def tried(repository: Path, gate: str = "", *, command: str | None = None, **keys: object) -> TrialView:
    state = repository.parent / "state"
    flags: Mapping[str, object] = {
        "state.dir": str(state),
        "checks.gate": gate,
        **{key.replace("__", "."): value for key, value in keys.items()},
    }
    loaded = load_config(environ={}, user_file=None, flags=flags)
    return await try_out(loaded.config, {}, TrialOrder(repository, command=command))


def read(*path: str) -> str:
    return Path(*path).read_text(encoding="utf-8")


async def test_a_green_gate_sees_the_commit_and_what_the_set_up_made(repository: Path) -> None:
    (repository / "a.txt").write_text("not committed\n", encoding="utf-8")
    before = fingerprint(repository)
    trial = await tried(
        repository, "grep -qx a a.txt && cat deps/tool", worktrees__setup="mkdir deps && echo t > deps/tool"
    )
    assert trial.verdict == "green"
    assert trial.setup is not None
    assert (trial.setup.check.passed, trial.setup.network) == (True, False)
    assert trial.check is not None
    assert trial.check.output == "t\n"
    assert any("uncommitted changes in 1 file" in note for note in trial.notes)
    assert fingerprint(repository) == before


async def test_a_red_gate_names_its_cause_and_keeps_its_log(repository: Path) -> None:
    many = "for n in $(seq 3000); do echo noise; done"
    trial = await tried(repository, f"no-such-program; {many}; false")
    assert trial.verdict == "red"
    assert trial.causes == ("bash: line 1: no-such-program: command not found",)
    assert trial.advice
    assert trial.check is not None
    assert "no-such-program" not in trial.check.output, "the tail alone would not say it"
    assert "no-such-program: command not found" in read(trial.logs, trial.check.log)


async def test_a_set_up_that_fails_is_distinguished_from_a_red_gate(repository: Path) -> None:
    trial = await tried(repository, "true", worktrees__setup="echo 'npm error code EAI_AGAIN'; exit 7")
    assert trial.verdict == "setup failed"
    assert trial.check is None
    assert trial.failed is not None
    assert trial.failed.exit_code == 7
    assert "worktrees.setup_network" in trial.advice[0]


async def test_a_command_runs_instead_of_the_gate(repository: Path) -> None:
    trial = await tried(repository, "false", command="echo mine")
    assert trial.verdict == "green"
    assert trial.check is not None
    assert trial.check.output == "mine\n"


async def test_without_a_gate_only_the_set_up_is_tried(repository: Path) -> None:
    trial = await tried(repository, worktrees__setup="true")
    assert trial.verdict == "no gate"
    assert trial.setup is not None


async def test_a_success_without_the_report_of_pytest_is_not_believed(repository: Path) -> None:
    trial = await tried(repository, "python3 -m pytest --co -q >/dev/null 2>&1; true")
    assert trial.verdict == "red"
    assert "did not report its tests" in trial.causes[0]


async def test_included_files_are_there(repository: Path) -> None:
    (repository / ".env").write_text("KEY=1\n", encoding="utf-8")
    assert (await tried(repository, "cat .env", worktrees__include=[".env"])).verdict == "green"
    assert (await tried(repository, "cat .env")).advice[0].startswith("a file is missing")


@pytest.mark.parametrize("lease", ["overlay", "pool"])
async def test_nothing_is_left_but_the_logs_of_the_last(repository: Path, lease: str) -> None:
    for _ in range(2):
        assert (await tried(repository, "true", worktrees__setup="true", worktrees__lease=lease)).verdict == "green"
    [home] = (repository.parent / "state" / "stores").iterdir()
    assert list((home / "slots").iterdir()) == []
    assert git(home / "fleet.git", "for-each-ref") == ""
    assert git(home / "fleet.git", "worktree", "list").count("\n") == 0
    assert len(list((home / "tried").iterdir())) == 2
    assert list((repository.parent / "state" / "runs").iterdir()) == []


async def test_what_a_killed_one_left_is_removed_by_the_next(repository: Path) -> None:
    await tried(repository, "true")
    [home] = (repository.parent / "state" / "stores").iterdir()
    left = home / "slots" / "try-0badcafe" / "overlays" / "leases"
    left.mkdir(parents=True)
    (home / "slots" / "try-0badcafe.lock").touch()
    await tried(repository, "true")
    assert list((home / "slots").iterdir()) == []


async def test_without_bubblewrap_it_is_refused(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_without("bwrap", tmp_path / "bin"))
    with pytest.raises(FleetError, match="apt-get install bubblewrap"):
        await tried(repository, "true")
