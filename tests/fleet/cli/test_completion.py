"""Completion: the right names at each place, within a keystroke, and nothing that a shell would act on."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.cli.completion import FILES, FOLDERS, TABLE, candidates, state_folder
from fleet.cli.completion_scripts import SCRIPTS, SHELLS
from fleet.cli.root_help import VERBS
from fleet.config.load import load_config
from fleet.core.base.ids import is_slug
from fleet.core.state import facts as f
from fleet.errors import UsageError
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from scripts.reference.completions import content
from tests.fleet.core.story import Story, plan_of
from tests.fleet.processes import LIMIT_S, clean_environment
from tests.worktrees.conftest import git

HEAVY = {"typer", "pydantic", "anyio", "rich", "textual", "anthropic", "git", "aiohttp", "platformdirs", "tomli_w"}
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
    changed = story.facts[0].model_copy(update={"run": name, "repository": str(repository)})
    with Journal.create(folder.journal) as journal:
        journal.append([f.FACT.validate_python(changed.model_dump()), *story.facts[1:]])
    os.utime(folder.journal, (1000 + at, 1000 + at))


def complete(*words: str) -> list[str]:
    """The candidates for the last word, without their descriptions."""
    *before, current = words
    return [candidate.partition("\t")[0] for candidate in candidates(before, current)]


# ---- what is offered ------------------------------------------------------------------------------------------------


def test_what_completion_knows_is_what_the_program_has() -> None:
    assert TABLE.read_text(encoding="utf-8") == content(), "make docs writes it"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("st",), ["status"]),
        (("plans", ""), ["check", "diff", "edit", "graph", "list", "save", "show"]),
        (("status", ""), ["shop-1", "old"]),
        (("status", "s"), ["shop-1"]),
        (("status", "shop-1", ""), []),
        (("logs", "api", "--run", ""), ["shop-1", "old"]),
        (("logs", "--run=o"), ["--run=old"]),
        (("logs", ""), ["api", "docs"]),
        (("logs", "--run", "old", "a"), ["api"]),
        (("retry", "-C", "../other", ""), ["api", "docs"]),
        (("status", "-C", "../other", ""), ["theirs"]),
        (("answer", ""), ["q1"]),
        (("answer", "q1", ""), []),
        (("approve", "--only", "d"), ["docs"]),
        (("run", "--plan", ""), ["deploy", "shrink", "shop-1", "old", FILES]),
        (("plans", "diff", "deploy", "sh"), ["shrink", "shop-1", FILES]),
        (("run", ""), [FILES]),
        (("report", "-o", ""), [FILES]),
        (("doctor", "--repo", ""), [FOLDERS]),
        (("run", "--review", ""), ["human", "auto", "none"]),
        (("status", "--color", "a"), ["auto", "always"]),
        (("cancel", "--y"), ["--yes"]),
        (("help", "com"), ["commits", "completion"]),
        (("completion", ""), list(SHELLS)),
        (("nonsense", ""), []),
        (("status", "--nonsense", "s"), ["shop-1"]),
        (("retry", "api", "--", ""), []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_may_stand_at_a_place(here: Path, words: tuple[str, ...], expected: list[str]) -> None:
    assert here.is_dir()
    assert complete(*words) == expected


def test_every_verb_is_offered_with_what_it_does(here: Path) -> None:
    assert here.is_dir()
    assert [line.split("\t") for line in candidates([], "")] == [[name, verb.summary] for name, verb in VERBS.items()]


def test_nothing_is_offered_that_a_shell_would_act_on(here: Path) -> None:
    """Names of folders and files that anyone may have chosen, as a repository's author its plans."""
    assert here.is_dir()
    for words in (("status", ""), ("run", "--plan", ""), ("plans", "show", ""), ("logs", "--run", "")):
        found = [name for name in complete(*words) if name != FILES]
        assert found
        assert [name for name in found if not is_slug(name)] == []


def test_a_run_that_is_damaged_is_passed_over(here: Path, tmp_path: Path) -> None:
    (tmp_path / "state" / "runs" / "shop-1" / "journal.db").write_bytes(b"garbage" * 1000)
    assert here.is_dir()
    assert complete("status", "") == ["old"]
    assert complete("logs", "--run", "shop-1", "") == []
    assert complete("logs", "--run", "../../x", "") == []


@pytest.mark.parametrize("source", ["variable", "file", "default", "broken file"])
def test_the_state_directory_is_the_one_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("FLEET_STATE_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    user_file = tmp_path / ".config" / "fleet" / "config.toml"
    user_file.parent.mkdir(parents=True)
    if source == "variable":
        monkeypatch.setenv("FLEET_STATE_DIR", "~/mine")
    elif source == "file":
        user_file.write_text('[state]\ndir = "~/there"\n', encoding="utf-8")
    elif source == "broken file":
        user_file.write_text("state = [", encoding="utf-8")
        with pytest.raises(UsageError):
            load_config(environ=dict(os.environ))
        assert state_folder() == tmp_path / ".local" / "state" / "fleet"
        return
    assert str(state_folder()) == load_config(environ=dict(os.environ)).config.state.dir


# ---- as a program ---------------------------------------------------------------------------------------------------

_LOADED = """
import sys
from fleet.cli import main
sys.argv = ["fleet", "--complete", *sys.argv[1:]]
main()
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def test_it_loads_nothing_heavy(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, "2", "fleet", "status", ""],
        cwd=here,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["shop-1", "old"]
    assert set(done.stderr.split()) & HEAVY == set()


@pytest.mark.parametrize("arguments", [(), ("x",), ("-1",), ("99", "fleet"), ("0",), ("2", "fleet", "logs")], ids=str)
def test_whatever_a_shell_asks_there_is_no_error(here: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "fleet", "--complete", *arguments]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


Press = Callable[[str], list[str]]


@pytest.fixture
def press(here: Path, tmp_path: Path) -> Iterator[Press]:
    """Tab in a real bash, at the end of a line: what it would put there."""
    script = tmp_path / "completion.bash"
    script.write_text(SCRIPTS["bash"], encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "fleet").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fleet "$@"\n', encoding="utf-8")
    (programs / "fleet").chmod(0o755)

    def tab(line: str) -> list[str]:
        words = line.replace("=", " = ").split(" ") if "=" in line else line.split(" ")
        at_the_cursor = f"COMP_CWORD={len(words) - 1}; _fleet_completion"
        asked = f'source "$0"; COMP_WORDS=("$@"); {at_the_cursor}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        environment = clean_environment(
            PATH=f"{programs}:{os.environ['PATH']}", FLEET_STATE_DIR=os.environ["FLEET_STATE_DIR"], HOME=str(tmp_path)
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", asked, str(script), *words],
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


def test_bash_puts_in_what_is_offered(press: Press, here: Path) -> None:
    for name in HOSTILE:
        (here / name).touch()
    assert press("fleet sta") == ["status"]
    assert press("fleet status ") == ["shop-1", "old"]
    assert press("fleet status --run=s") == ["shop-1"]
    assert press("fleet doctor --repo .f") == [".fleet"]
    assert "$(touch hacked)" in press("fleet report -o "), "readline quotes the names of files"
