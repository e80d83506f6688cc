"""The command line as a program: help that answers at once, exit codes, pipes, colours, completion."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fleet import __version__
from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.fleet.processes import LIMIT_S, clean_environment
from tests.fleet.program import fleet, left_run

VERBS = [
    verb.split()
    for verb in (
        "plan, run, resume, limits, rehearse, watch, runs, status, show, logs, diff, approve, reject, pause, "
        "cancel, tell, retry, answer, merge, tend, pr, metrics, commits, report, trace, audit, doctor, try, init, "
        "notify test, notify list, notify watch, web, simulate, acp, mcp, node, nodes, clean, config show, plans "
        "show, plans check, plans diff, plans graph, plans list, plans save, plans edit, explain-policy, "
        "completion, help, version"
    ).split(", ")
]
QUICK = (["run"], ["status"], ["mcp"])
"""Three verbs whose help `make test` prints, too; the others are thorough."""
HEAVY = {"anthropic", "textual", "git", "prometheus_client", "aiohttp", "acp", "mcp", "mcp_types"}
LOADED = """
import sys
from fleet.cli.entry import run_program
sys.argv = ["fleet", *sys.argv[1:]]
try:
    run_program()
finally:
    print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return left_run(tmp_path)


# ---- watching as text ------------------------------------------------------------------------------------------------


def test_a_run_is_printed_line_by_line_where_there_is_no_screen(run: RunFolder, tmp_path: Path) -> None:
    watched = fleet("watch", run.run, cwd=tmp_path)
    assert watched.returncode == 0, watched.stderr
    assert "landed docs (1 of 2)" in watched.stdout
    assert "QUESTION   q1" in watched.stdout, "how it stands comes last"
    assert "\x1b" not in watched.stdout


def test_a_replay_as_text_tells_the_same(run: RunFolder, tmp_path: Path) -> None:
    replayed = fleet("watch", run.run, "--plain", "--replay", "--speed", "1000", cwd=tmp_path)
    assert "landed docs (1 of 2)" in replayed.stdout
    assert fleet("watch", "shop-1", "--replay", "--speed", "0", cwd=tmp_path).returncode == 2


# ---- help ------------------------------------------------------------------------------------------------------------


def test_the_verbs_tested_here_are_all_there_are(tmp_path: Path) -> None:
    listed = fleet("--help", cwd=tmp_path).stdout.partition("\nWork:\n")[2].partition("\n\n  `fleet help VERB`")[0]
    assert set(re.findall(r"^  ([\w-]+)", listed, re.MULTILINE)) == {verb[0] for verb in VERBS}


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=[] if verb in QUICK else pytest.mark.thorough) for verb in VERBS], ids=" ".join
)
def test_the_help_of_each_verb_has_examples_and_loads_nothing_heavy(tmp_path: Path, verb: list[str]) -> None:
    done = fleet(*verb, "--help", cwd=tmp_path, program=("-c", LOADED))
    assert done.returncode == 0
    usage, _, examples = done.stdout.partition("Examples:")
    assert usage.lstrip().startswith("Usage: ")
    assert f"fleet {' '.join(verb)}" in examples
    loaded = set(done.stderr.rpartition("loaded:")[2].split())
    assert "typer" in loaded
    assert loaded & HEAVY == set()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]], ids=" ".join)
def test_asking_for_help_always_works(tmp_path: Path, arguments: list[str]) -> None:
    done = fleet(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: fleet")


def test_the_version_is_printed(tmp_path: Path) -> None:
    done = fleet("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"fleet {__version__}\n")


def test_no_line_of_help_is_wider_than_a_terminal(tmp_path: Path) -> None:
    for verb in ([], ["run"], ["config", "show"]):
        assert max(map(len, fleet(*verb, "--help", cwd=tmp_path, COLUMNS="80").stdout.splitlines())) <= 80


# ---- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["lnad"],
        ["status", "--jsn"],
        ["status", "one", "two"],
        ["tell"],
        ["retry"],
        ["merge", "r"],
        ["run", "x", "--workers", "many"],
        ["run"],
        ["run", "x", "--plan", "y.toml"],
        ["plan"],
        ["config"],
        ["status", "no-such-run"],
        ["show", "no-such-subtask"],
    ],
    ids=" ".join,
)
def test_a_mistake_in_the_command_is_exit_code_2_with_a_word_and_no_traceback(
    tmp_path: Path, arguments: list[str]
) -> None:
    done = fleet(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert (done.stderr + done.stdout).strip()
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_damaged_run_is_exit_code_3_with_a_word_and_no_traceback(tmp_path: Path, run: RunFolder) -> None:
    run.journal.write_bytes(b"garbage" * 1000)
    done = fleet("status", "shop-1", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert str(run.journal) in done.stderr
    assert "Traceback" not in done.stderr
    others = fleet("runs", cwd=tmp_path)
    assert others.returncode == 0
    assert "1 run could not be read" in others.stderr


# ---- looking ---------------------------------------------------------------------------------------------------------


def test_the_only_run_is_the_one_that_is_meant(tmp_path: Path, run: RunFolder) -> None:
    done = fleet("status", "--json", cwd=tmp_path)
    assert "is not in a git repository. Using shop-1, a run in" in done.stderr
    said = json.loads(done.stdout)
    assert said["run"] == run.run
    assert said["state"] == "interrupted"
    assert [question["id"] for question in said["questions"]] == ["q1"]


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, run: RunFolder) -> None:
    """As in `fleet runs | head -1`, without a message or a traceback."""
    with Journal(run.journal) as journal:
        journal.append([f.WarningNoted(at=1, text="x" * 1000) for _ in range(500)])
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fleet", "status", "shop-1"],
            cwd=tmp_path,
            env=clean_environment(FLEET_STATE_DIR=str(tmp_path / "state")),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
    finally:
        os.close(writing)
    assert done.stderr == ""


# ---- asking ----------------------------------------------------------------------------------------------------------


def test_a_request_waits_in_the_inbox_and_says_who_takes_it(tmp_path: Path, run: RunFolder) -> None:
    done = fleet("answer", "Q1", "use sqlite", "--run", "shop-1", cwd=tmp_path)
    assert done.returncode == 0
    assert "fleet resume shop-1" in done.stdout
    with Journal(run.journal) as journal:
        ((_, request),) = journal.requests()
    assert isinstance(request, f.QuestionAnswered)
    assert (request.question, request.answer) == ("q1", "use sqlite")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["answer", "q7", "yes"], "unknown question 'q7'"),
        (["answer", "q1", " "], "the answer is empty"),
        (["tell", "dcos", "use UTC"], "did you mean 'docs'?"),
        (["tell", "docs", "use UTC"], "docs has landed"),
        (["retry", "dcos"], "did you mean 'docs'?"),
        (["retry", "docs"], "docs is merged"),
        (["show", "dcos"], "did you mean 'docs'?"),
        (["status", "shop-2"], "did you mean 'shop-1'?"),
        (["limits", "--workers", "many"], "invalid value for '--workers': must be a valid integer\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_request_that_makes_no_sense_is_refused_at_once(
    tmp_path: Path, run: RunFolder, arguments: list[str], why: str
) -> None:
    done = fleet(*arguments, *(() if "shop-2" in arguments else ("--run", "shop-1")), cwd=tmp_path)
    assert done.returncode == 2
    assert why in done.stderr
    with Journal(run.journal) as journal:
        assert journal.requests() == []
