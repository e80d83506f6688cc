"""The program: what it costs is said first, runs are real but for the model, and a worse prompt loses."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from evaluation.__main__ import main, parser, service_of
from evaluation.cases import all_cases
from evaluation.field import RESULTS, Field, plan_field, play_field
from evaluation.runs import Played, Service, environment_of, play
from evaluation.stand_in import RULES
from evaluation.versions import our_prompts, program_with, read_version
from fleet.errors import FleetError


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    code = main([*arguments, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def worse_prompts(folder: Path) -> Path:
    folder.mkdir()
    for file in {file for file, _ in RULES.values()}:
        text = our_prompts()[file]
        for _, words in RULES.values():
            text = text.replace(words, "")
        (folder / file).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.thorough
def test_a_worse_prompt_loses_in_runs_that_are_real_but_for_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worse, kept = worse_prompts(tmp_path / "worse"), tmp_path / "kept"
    order = ("--simulated", "--case", "two_bugs", "--seeds", "1", "--against", str(worse), "--keep", str(kept))
    code, document, err = evaluated(capsys, *order)
    assert code == 0, "one repository is too few to conclude anything"
    assert "1 case x 2 prompt versions x 1 seed = 2 runs" in err
    assert set(document) == {
        "schema_version",
        "simulated",
        "versions",
        "budget_dollars",
        "spent_dollars",
        "runs",
        "comparison",
    }
    compared = {each["measure"]: each for each in document["comparison"]}
    assert {each["verdict"] for each in compared.values()} <= {"too few repositories"}
    proving, needed = compared["criteria that fail before the work"], compared["touches that were needed"]
    assert proving["second"] < proving["first"]
    assert needed["second"] < needed["first"] == 1
    assert [run["score"]["solved"] for run in document["runs"]] == [True, True], "the fleet recovers, at a price"
    assert compared["dollars"]["difference"] > 0
    assert all("coder claude" in rung for run in document["runs"] for rung in run["score"]["rungs"])

    transcripts = [path.read_text() for path in kept.glob("*/state/runs/*/transcripts/planner.1.jsonl")]
    words = RULES["evidence"][1]
    assert sorted(words in text for text in transcripts) == [False, True], "each version had its own prompts"

    again_code, again, err = evaluated(capsys, *order)
    assert (again_code, again) == (0, document)
    assert "landed" not in err, "no run is made again"


def test_the_most_that_it_may_cost_is_said_before_anything_is_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, kept = tmp_path / "key", tmp_path / "kept"
    key.write_text("a-key\n", encoding="utf-8")
    order = ("--key-file", str(key), "--budget", "24", "--seeds", "2", "--keep", str(kept))
    code, document, err = evaluated(capsys, *order)
    assert (code, document, kept.exists()) == (2, None, False)
    assert "8 cases x 1 prompt version x 2 seeds = 16 runs, at most $1.50 each: at most $24.00" in err
    assert "--yes" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--key-file", "KEY"), "requires --budget USD"),
        (("--key-file", "gone", "--budget", "1"), "can't read the key"),
        (("--key-file", "EMPTY", "--budget", "1"), "must contain only the API key"),
        (("--simulated", "--against", "nothing-of-this-name"), "neither a directory with prompts nor a commit"),
        (("--simulated", "--against", "this-tree"), "the same prompts"),
        (("--simulated", "--config", "gone.toml"), "does not exist"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "KEY").write_text("a-key")
    (tmp_path / "EMPTY").write_text("\n")
    given = [str(tmp_path / each) if each in {"KEY", "EMPTY"} else each for each in arguments]
    code, document, err = evaluated(capsys, *given)
    assert (code, document) == (2, None)
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize("amount", ["0", "-1", "nan", "inf", "much", ""])
def test_a_budget_is_an_amount(amount: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--simulated", "--budget", amount])
    assert "must be greater than 0" in capsys.readouterr().err


def test_a_result_of_something_else_is_not_taken_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / RESULTS).write_text('{"case": "two_bugs"}\n')
    code, _, err = evaluated(capsys, "--simulated", "--case", "two_bugs", "--keep", str(tmp_path))
    assert code == 3
    assert "line 1, is not an evaluation result" in err


def field_of(budget: float | None) -> Field:
    cases = list(all_cases().values())[:2]
    return plan_field(cases, [read_version("this-tree")], 3, budget=budget, minutes=5)


def test_the_budget_is_divided_among_the_runs_and_pairs_come_first() -> None:
    field = field_of(12.0)
    assert {order.dollars for order in field.orders} == {2.0}
    assert [order.seed for order in field.orders] == [1, 1, 2, 2, 3, 3]
    assert "free of charge" in field_of(None).announcement(simulated=True)


def test_an_error_in_one_run_stops_the_others(tmp_path: Path) -> None:
    seen: list[Event] = []

    def fail(*arguments: object) -> Played:
        seen.extend(each for each in arguments if isinstance(each, Event))
        raise FleetError("the disk is full")

    with pytest.raises(FleetError, match="the disk is full"):
        play_field(field_of(None), Service(), tmp_path, play=fail)
    assert [stopping.is_set() for stopping in seen] == [True]


def test_a_run_that_has_to_stop_is_stopped(tmp_path: Path) -> None:
    stopping = Event()
    stopping.set()
    order = field_of(None).orders[0]
    program = program_with(order.version, tmp_path / "program")
    with pytest.raises(FleetError, match="was stopped"):
        play(order, Service(), program, tmp_path, stopping)


def test_a_run_has_the_key_that_was_named_and_nothing_else_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "another-key")
    monkeypatch.setenv("FLEET_RUN_WORKERS", "3")
    (tmp_path / "key").write_text("a-key\n", encoding="utf-8")
    given = ["--key-file", str(tmp_path / "key"), "--budget", "1", "--base-url", "http://127.0.0.1:9"]
    service = service_of(parser().parse_args(given))
    environment = environment_of(tmp_path, service)
    assert (service.simulated, environment[environment["FLEET_MODELS_API_KEY_ENV"]]) == (False, "a-key")
    assert "another-key" not in environment.values()
    assert "FLEET_RUN_WORKERS" not in environment
