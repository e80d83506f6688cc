"""Completion: the right names at each place, and nothing that a shell would act on."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.cli.entry import app
from fleet.cli.verb_table import VERBS
from fleet.core.base.ids import is_slug
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.state.state import RunState
from fleet.errors import FleetError, UsageError
from fleet.features.completion.verbs import PLACES, VARIABLE, script
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.fleet.core.story import Story, plan_of
from tests.fleet.processes import LIMIT_S, clean_environment
from tests.worktrees.conftest import git

OLD_JOURNALS = Path(__file__).parents[2] / "core" / "journals"
HOSTILE = (
    "$(touch hacked)",
    "`touch hacked`",
    "a;touch hacked",
    "--force",
    "a b",
    "a\nb",
    "\x1b]52;c;eA==\x07",
    "'",
    "ü",
)


def fleet(*arguments: str) -> None:
    app([*arguments], prog_name="fleet", standalone_mode=False)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two runs, beside one of another, with the names of plans and of things that are none."""
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    repository, other = tmp_path / "work", tmp_path / "other"
    for number, (name, at) in enumerate((("old", repository), ("shop-1", repository), ("theirs", other))):
        at.mkdir(exist_ok=True)
        git(at, "init", "-q", "-b", "main")
        _write_run(tmp_path / "state", name, at, number)
    plans = repository / ".fleet" / "plans"
    plans.mkdir(parents=True)
    for stem in ("deploy", "shrink", *HOSTILE):
        (plans / f"{stem}.toml").write_text("", encoding="utf-8")
    for name in HOSTILE:
        folder = tmp_path / "state" / "runs" / name
        folder.mkdir()
        (folder / "journal.db").write_bytes(b"none")
    monkeypatch.chdir(repository)
    return repository


def _write_run(state_dir: Path, name: str, repository: Path, at: int) -> None:
    folder = RunFolder(state_dir / "runs" / name)
    story = Story(plan=plan_of("api", "docs", failure_action="ask"))
    story.attempt_fails("api")
    story.landed("docs")
    changed = story.facts[0].model_copy(update={"run": name, "repository": str(repository), "at": 1000 + at})
    with Journal.create(folder.journal) as journal:
        journal.append([f.FACT.validate_python(changed.model_dump()), *story.facts[1:]])


Complete = Callable[..., list[str]]


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What is offered for the last word, as the script for bash asks for it."""

    def offered(*words: str) -> list[str]:
        monkeypatch.setenv(VARIABLE, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(("fleet", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit) as ended:
            app(prog_name="fleet")
        printed = capsys.readouterr()
        assert (ended.value.code, printed.err) == (0, "")
        return printed.out.split("\n")[:-1] if printed.out.strip() else []

    return offered


# ---- what is offered ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("st",), ["status"]),
        (("plans", ""), ["show", "check", "diff", "graph", "list", "save", "edit"]),
        (("status", ""), ["shop-1", "old"]),
        (("status", "s"), ["shop-1"]),
        (("status", "shop-1", ""), []),
        (("logs", "api", "--run", ""), ["shop-1", "old"]),
        (("logs", ""), ["api", "docs"]),
        (("logs", "--run", "old", "a"), ["api"]),
        (("retry", "-C", "../other", ""), ["api", "docs"]),
        (("status", "-C", "../other", ""), ["theirs"]),
        (("answer", ""), ["q1"]),
        (("answer", "q1", ""), []),
        (("approve", "--only", "d"), ["docs"]),
        (("run", "--plan", ""), ["deploy", "shrink", "shop-1", "old"]),
        (("plans", "diff", "deploy", "sh"), ["shrink", "shop-1"]),
        (("run", ""), []),
        (("config", "get", "run.budget_d"), ["run.budget_dollars"]),
        (("cancel", "--y"), ["--yes"]),
        (("help", "com"), ["commits", "completion"]),
        (("completion", ""), list(PLACES)),
        (("status", "--nonsense", "s"), ["shop-1"]),
        (("retry", "api", "--", ""), []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_may_stand_at_a_place(here: Path, complete: Complete, words: tuple[str, ...], expected: list[str]) -> None:
    assert here.is_dir()
    assert complete(*words) == expected


def test_every_verb_is_offered_with_what_it_does(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert here.is_dir()
    monkeypatch.setenv(VARIABLE, "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "fleet ")
    with pytest.raises(SystemExit):
        app(prog_name="fleet")
    offered = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert offered == [[name, verb.summary] for name, verb in VERBS.items()]


def test_nothing_is_offered_that_a_shell_would_act_on(here: Path, complete: Complete) -> None:
    """Names of folders, files and keys that anyone may have chosen, as a repository's author its plans."""
    (here / "fleet.toml").write_text('[workers."$(touch hacked)"]\nkind = "coder"\n', encoding="utf-8")
    for words in (("status", ""), ("run", "--plan", ""), ("plans", "show", ""), ("logs", "--run", "")):
        assert (found := complete(*words))
        assert [name for name in found if not is_slug(name)] == []
    assert [name for name in complete("config", "get", "") if not is_slug(name)] == []


def test_a_run_that_is_damaged_is_passed_over(here: Path, complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "state" / "runs" / "shop-1" / "journal.db").write_bytes(b"garbage" * 1000)
    assert here.is_dir()
    assert complete("status", "") == ["old"]
    assert complete("logs", "--run", "shop-1", "") == []
    assert complete("logs", "--run", "../../x", "") == []


@pytest.mark.parametrize("name", ["v1.jsonl", "reviews.jsonl"])
def test_the_few_facts_that_are_read_name_all_subtasks_and_open_questions(
    here: Path, complete: Complete, tmp_path: Path, name: str
) -> None:
    assert here.is_dir()
    facts = [f.FACT.validate_json(line) for line in (OLD_JOURNALS / name).read_text(encoding="utf-8").splitlines()]
    with Journal.create(tmp_path / "state" / "runs" / "long" / "journal.db") as journal:
        journal.append(facts)
    state: RunState | None = None
    for number, fact in enumerate(facts):
        state = evolve(state, fact)
        if isinstance(fact, f.RunStarted | f.PlanRevised | f.QuestionAsked | f.QuestionAnswered):
            with Journal.create(tmp_path / "state" / "runs" / f"until-{number}" / "journal.db") as journal:
                journal.append(facts[: number + 1])
            assert complete("logs", "--run", f"until-{number}", "") == list(state.plan.ids)
            open_ones = {question.id for question in state.open_questions()}
            assert open_ones <= set(complete("answer", "--run", f"until-{number}", ""))


def test_every_key_can_be_completed(here: Path, complete: Complete, capsys: pytest.CaptureFixture[str]) -> None:
    assert here.is_dir()
    app(["config", "show", "--json"], prog_name="fleet", standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    offered = set(complete("config", "get", ""))
    for section in ("run", "checks", "box", "git", "worktrees"):
        keys = {f"{section}.{key}" for key, value in document[section].items() if not isinstance(value, dict)}
        assert keys <= offered


# ---- as a program ---------------------------------------------------------------------------------------------------

Press = Callable[[str], list[str]]


@pytest.fixture
def press(here: Path, tmp_path: Path) -> Iterator[Press]:
    """Tab in a real bash, at the end of a line: what it would put there."""
    loaded = tmp_path / "completion.bash"
    loaded.write_text(script("bash"), encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "fleet").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fleet "$@"\n', encoding="utf-8")
    (programs / "fleet").chmod(0o755)

    def tab(line: str) -> list[str]:
        words = line.replace("=", " = ").split(" ") if "=" in line else line.split(" ")
        at_the_cursor = f"COMP_CWORD={len(words) - 1}; _fleet_completion fleet"
        asked = f'source "$0"; COMP_WORDS=("$@"); {at_the_cursor}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        environment = clean_environment(
            PATH=f"{programs}:{os.environ['PATH']}", FLEET_STATE_DIR=os.environ["FLEET_STATE_DIR"], HOME=str(tmp_path)
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", asked, str(loaded), *words],
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        return done.stdout.splitlines()

    yield tab
    assert not list(tmp_path.rglob("hacked")), "a name was run"


@pytest.mark.parametrize(
    "hostile", [HOSTILE[:2], pytest.param(HOSTILE, marks=pytest.mark.thorough)], ids=("two", "all")
)
def test_bash_puts_in_what_is_offered(press: Press, here: Path, hostile: tuple[str, ...]) -> None:
    for name in HOSTILE:
        (here / name).touch()
    assert press("fleet sta") == ["status"]
    assert press("fleet status ") == ["shop-1", "old"]
    assert press("fleet logs --run ") == ["shop-1", "old"]
    assert press("fleet run --plan ") == ["deploy", "shrink", "shop-1", "old"]
    for name in hostile:  # `press` looks for what a shell would have done
        press(f"fleet logs {name} --run s")
        press(f"fleet logs --run {name}")


# ---- installed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", PLACES)
def test_a_script_is_installed_where_its_shell_looks(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    fleet("completion")
    assert capsys.readouterr().out == script(shell)
    place = Path(PLACES[shell][0].replace("~", str(tmp_path)))
    for _ in range(2):
        fleet("completion", "--install")
        assert place.read_text(encoding="utf-8") == script(shell)
    place.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="already exists; use --force to overwrite it"):
        fleet("completion", "--install")
    fleet("completion", "--install", "--force")
    assert place.read_text(encoding="utf-8") == script(shell)


def test_a_home_that_takes_nothing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".local").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FleetError, match=r"can't create .*: Not a directory; use -o FILE"):
        fleet("completion", "bash", "--install")
    with pytest.raises(UsageError, match="no completion for the shell 'tcsh'; use one of bash, zsh, fish"):
        fleet("completion", "tcsh")
