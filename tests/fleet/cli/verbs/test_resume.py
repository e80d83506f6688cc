"""What a run was started with is there when it is resumed, option by option; what is not has its reason."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.exceptions import TyperException

from dashboards.metrics.settings import Metrics
from fleet.app.fleet import Fleet
from fleet.cli.entry import NOT_FOR_RESUME, app, usage_error
from fleet.cli.verbs import start as begin
from fleet.core.state.state import RunState
from fleet.errors import UsageError
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.worktrees.conftest import git

CLOSED = "http://127.0.0.1:9"  # nothing listens there
PLAN = {
    "plan_id": "p",
    "goal": "Write it.",
    "subtasks": [
        {"id": "one", "title": "Write $file", "goal": "Write.", "acceptance": [{"criterion": "it is", "run": "true"}]}
    ],
    "parameters": {"file": {"type": "string", "default": "a"}},
}


@dataclass
class Tried:
    """Both verbs, as far as the engine: what it would have been started with."""

    repository: Path
    fleets: list[Fleet] = field(default_factory=list)
    folders: list[RunFolder] = field(default_factory=list)

    def verb(self, *arguments: str) -> Fleet:
        app([*arguments], prog_name="fleet", standalone_mode=False)
        return self.fleets[-1]

    def run(self, *options: str, epic: str | None = "Write it") -> Fleet:
        return self.verb("run", *([epic] if epic else []), "--repo", str(self.repository), *options)

    def resume(self, *options: str) -> Fleet:
        return self.verb("resume", self.folder.run, *options)

    @property
    def folder(self) -> RunFolder:
        return self.folders[-1]

    @property
    def state(self) -> RunState:
        return self.folder.state()

    def start_engine(self, fleet: Fleet) -> None:
        """As much of an engine as the journal sees when it is killed at once."""
        with Journal(self.folder.journal) as journal:
            journal.append([fleet._engine_started(self.state)])


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tried:
    repository = tmp_path / "work"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    git(repository, "commit", "-q", "--allow-empty", "-m", "start")
    git(repository, "branch", "other")
    for name, value in {
        "FLEET_STATE_DIR": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "FLEET_MODELS_API_KEY_ENV": "TEST_KEY",
        "FLEET_MODELS_BASE_URL": CLOSED,
        "TEST_KEY": "key",
    }.items():
        monkeypatch.setenv(name, value)
    trial = Tried(repository)

    def started(fleet: Fleet, folder: RunFolder, _: object) -> int:
        trial.fleets.append(fleet)
        trial.folders.append(folder)
        return 0

    monkeypatch.setattr(begin, "work_and_show", started)
    return trial


# ---- option by option -----------------------------------------------------------------------------------------------

IN_THE_CONFIGURATION: Mapping[str, tuple[str, ...]] = {
    "--base-url": ("--base-url", "http://127.0.0.1:10"),
    "--sandbox": ("--sandbox", "none"),
    "--metrics": ("--metrics", "127.0.0.1:9499"),
    "--config": ("--config", "more.toml"),
    "--allow-red-base": ("--allow-red-base",),
    "--flat": ("--flat",),
    "--setup-network": ("--setup-network",),
    "--workers": ("--workers", "3"),
    "--budget": ("--budget", "7"),
    "--minutes": ("--minutes", "90"),
    "--tokens": ("--tokens", "5000"),
    "--attempts": ("--attempts", "44"),
    "--not-between": ("--not-between", "22:00-07:00"),
    "--otlp": ("--otlp", "http://127.0.0.1:9"),
}
"""Options that set keys of the configuration: the engine is started with the same one again."""
QUICK = {"--base-url", "--allow-red-base", "--config", "--workers"}
IN_THE_JOURNAL: Mapping[str, tuple[tuple[str, ...], Callable[[RunState], object], object]] = {
    "--repo": ((), lambda state: Path(state.repository).name, "work"),
    "--base": (("--base", "other"), lambda state: state.base_name, "other"),
    "--name": (("--name", "health"), lambda state: state.run, "health"),
    "--review": (("--review", "human"), lambda state: state.policy.reviewing, "human"),
    "--yes": (("--yes",), lambda state: state.policy.reviewing, "none"),
    "--plan": (("--plan", "plan.json"), lambda state: state.plan.ids, ("one",)),
    "--set": (("--plan", "plan.json", "--set", "file=b"), lambda state: state.values, {"file": "b"}),
}
"""Options that the first fact records."""
OF_THE_CALL = {"--plain", "--no-tui", "--web", "--detach", "--json", "--color", "--quiet", "--verbose"}
"""How this call shows the run: `fleet resume` has the same options, for its own call."""
LIMITS = {"--workers", "--budget", "--minutes", "--tokens", "--attempts", "--allow-red-base", "--flat"}


def _options(verb: str) -> set[str]:
    root: Any = typer.main.get_command(app)
    return {option.opts[0] for option in root.commands[verb].params if option.param_type_name == "option"}


def test_every_option_of_run_is_remembered_or_has_a_reason() -> None:
    kept = {*IN_THE_CONFIGURATION, *IN_THE_JOURNAL}
    assert _options("run") == kept | OF_THE_CALL | {"--plan-only", "--estimate"}
    assert _options("resume") >= OF_THE_CALL
    assert NOT_FOR_RESUME.keys() == _options("run") - _options("resume")


@pytest.mark.parametrize(
    "option",
    [pytest.param(each, marks=[] if each in QUICK else pytest.mark.thorough) for each in IN_THE_CONFIGURATION],
)
def test_an_option_is_as_it_was(tried: Tried, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.toml").write_text('[box]\nnetwork = true\n[models]\nworker = "other"\n', encoding="utf-8")
    started = tried.run(*IN_THE_CONFIGURATION[option])
    plain = tried.run()
    assert started.config != plain.config
    tried.folders.pop()
    limits = tried.state.policy
    monkeypatch.chdir(tried.repository)
    resumed = tried.resume()
    assert resumed.config == started.config
    tried.start_engine(resumed)
    assert tried.resume().config == started.config
    if option in LIMITS:
        assert tried.state.policy == limits


@pytest.mark.parametrize("option", IN_THE_JOURNAL)
def test_what_the_first_fact_records_is_as_it_was(
    tried: Tried, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    options, look, expected = IN_THE_JOURNAL[option]
    tried.run(*options, epic=None if "--plan" in options else "Write it")
    assert look(tried.state) == expected
    tried.start_engine(tried.resume())
    assert look(tried.state) == expected


@pytest.mark.parametrize("option", sorted(NOT_FOR_RESUME))
def test_an_option_that_resume_lacks_comes_with_the_reason(option: str) -> None:
    with pytest.raises(TyperException) as refused:
        app(["resume", option, "x"], prog_name="fleet", standalone_mode=False)
    assert usage_error(refused.value).hint == NOT_FOR_RESUME[option]


# ---- what stands above what -----------------------------------------------------------------------------------------


def test_variables_are_as_they_were_until_another_is_set(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_PLANNER_MODEL", "one")
    monkeypatch.setenv("FLEET_LIMITS_ATTEMPTS", "9")
    tried.run()
    monkeypatch.delenv("FLEET_PLANNER_MODEL")
    monkeypatch.delenv("FLEET_LIMITS_ATTEMPTS")
    assert tried.resume().config.planner.model == "one"
    assert tried.state.policy.max_attempts == 9
    monkeypatch.setenv("FLEET_PLANNER_MODEL", "two")
    assert tried.resume().config.planner.model == "two"


def test_an_option_of_resume_replaces_its_own_and_stays(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    tried.run("--base-url", "http://127.0.0.1:10", "--metrics", "127.0.0.1:9499")
    monkeypatch.setenv("FLEET_MODELS_BASE_URL", "http://127.0.0.1:11")
    assert tried.resume().config.models.base_url == "http://127.0.0.1:10", "a flag comes before a variable"
    resumed = tried.resume("--base-url", "http://127.0.0.1:12")
    tried.start_engine(resumed)
    again = tried.resume()
    assert (again.config.models.base_url, again.config.of(Metrics).listen) == ("http://127.0.0.1:12", "127.0.0.1:9499")


def test_configuration_files_are_read_again(tried: Tried, tmp_path: Path) -> None:
    file = tmp_path / "more.toml"
    file.write_text("[box]\nnetwork = true\n", encoding="utf-8")
    tried.run("--config", str(file))
    file.write_text("[box]\nnetwork = false\n", encoding="utf-8")
    assert not tried.resume().config.box.network
    file.unlink()
    with pytest.raises(
        UsageError, match=f"was started with --config {file}, which no longer exists; use --config FILE"
    ):
        tried.resume()


@pytest.mark.parametrize(
    ("options", "variables", "key"),
    [
        (("--base-url", "http://me:hunter2@127.0.0.1:9"), {}, "models.base_url"),
        ((), {"FLEET_BOX_ENVIRONMENT": '{"TOKEN": "hunter2"}'}, "box.environment.TOKEN"),
    ],
    ids=["base-url", "environment"],
)
def test_a_secret_is_not_kept_and_wanted_again(
    tried: Tried, options: tuple[str, ...], variables: Mapping[str, str], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    started = tried.run(*options)
    tried.start_engine(started)
    assert b"hunter2" not in tried.folder.journal.read_bytes()
    for name in variables:
        monkeypatch.delenv(name)
    with pytest.raises(UsageError, match=f"{key} may contain a secret and is not stored with the run; set it again"):
        tried.resume()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tried.resume(*options).config == started.config
