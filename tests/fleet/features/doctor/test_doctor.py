"""The doctor says of each worker whether it can work here, before a run relies on it."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.main import get_command

from fleet.app.fleet import Fleet
from fleet.cli.entry import app
from fleet.config.load import Loaded, load_config
from fleet.features.doctor.verbs import TESTED_PYTHONS, examine, python_finding, worker_findings
from fleet.read.base_view import Finding
from tests.worktrees.conftest import git, make_repository

ROOT = Path(__file__).parents[4]


def look(own: dict[str, Any], **box: Any) -> tuple[str, str]:
    """The description of a worker, and what to do about it."""
    keys = {"workers.w": own, "state.dir": "/nowhere", **{f"box.{key}": value for key, value in box.items()}}
    config = load_config(environ={}, user_file=None, flags=keys).config
    only = config.model_copy(update={"workers": {"w": config.workers["w"]}})
    (finding,) = worker_findings(Fleet(Loaded(only, {}), {}))
    name, _, description = finding.says.partition(": ")
    assert (finding.what, finding.ok, name in {"w", "workers"}) == ("worker", not finding.fix, True)
    return description, finding.fix


@pytest.mark.parametrize(
    ("own", "description"),
    [
        ({}, "coder, claude-haiku-5-5"),
        ({"models": ["a", "b"]}, "coder, a → b"),
        ({"rungs": ["a low", "b"]}, "coder, a low → b"),
        (
            {"kind": "retriever", "hosts": ["docs.example.org"]},
            "retriever, claude-haiku-5-5, may fetch from docs.example.org",
        ),
        ({"kind": "command", "command": "sh x {goal}", "network": True}, "command, runs sh, with network access"),
        ({"kind": "command", "command": "tools/deploy"}, "command, runs tools/deploy"),
        ({"kind": "acp", "command": "sh -c x"}, "acp, with its own model, runs sh"),
        ({"kind": "acp", "command": "sh -c x", "model": "m"}, "acp, m, runs sh"),
    ],
)
def test_a_worker_that_can_work_is_shown_with_what_it_has(own: dict[str, Any], description: str) -> None:
    assert look(own) == (description, "")


@pytest.mark.parametrize(
    ("own", "fix"),
    [
        ({"kind": "codder"}, "did you mean 'coder'"),
        ({"kind": "retriever"}, "hosts is missing"),
        ({"kind": "command"}, "command is missing"),
        ({"kind": "command", "command": "no-such-program"}, "no-such-program is not in the sandbox's PATH"),
        ({"kind": "acp"}, "command is missing"),
        ({"kind": "acp", "command": "no-such-agent acp"}, "no-such-agent is not in the sandbox's PATH"),
        ({"kind": "claude-code", "command": "no-such-claude"}, "no-such-claude is not in PATH"),
        ({"rungs": ["a"], "models": ["b"]}, "workers.w: model and rungs can't be used together"),
        ({"pass_environment": ["NO_SUCH_KEY"]}, "NO_SUCH_KEY is not set"),
    ],
)
def test_a_worker_that_can_not_says_what_to_do(own: dict[str, Any], fix: str) -> None:
    assert fix in look(own)[1]


def test_a_program_has_to_be_shown_to_the_box(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    own = {"kind": "command", "command": str(program)}
    assert "is not visible in the sandbox" in look(own)[1]
    assert look({**own, "read_only": [str(tmp_path)]})[1] == ""
    assert look(own, sandbox="none")[1] == ""


# ---- what a first run needs ----------------------------------------------------------------------------------------


def examined(tmp_path: Path, environ: dict[str, str], *, gate: bool = False, **keys: Any) -> dict[str, Finding]:
    """What the doctor finds in a new repository, by what it is about."""
    repository = tmp_path / "project"
    if not repository.exists():
        make_repository(repository)
    flags = {"state.dir": str(tmp_path / "state"), **{key.replace("__", "."): value for key, value in keys.items()}}
    loaded = load_config(environ={}, user_file=None, flags=flags)
    findings = anyio.run(lambda: examine(Fleet(loaded, {"HOME": str(tmp_path), **environ}), repository, gate=gate))
    return {finding.what: finding for finding in findings}


def test_a_key_is_missing_only_for_what_needs_one(tmp_path: Path) -> None:
    program = {"kind": "command", "command": "true"}
    found = examined(tmp_path, {}, workers__sh=program)["model"]
    assert found.ok
    assert "all its workers are programs: sh" in found.fix


def test_without_programs_a_key_is_needed(tmp_path: Path) -> None:
    found = examined(tmp_path, {})["model"]
    assert not found.ok
    assert "ANTHROPIC_API_KEY" in found.fix


def test_a_missing_gate_and_hidden_tools_are_named(tmp_path: Path) -> None:
    (tmp_path / ".cargo/bin").mkdir(parents=True)
    found = examined(tmp_path, {})
    assert (found["gate"].ok, found["gate"].state) == (True, "warning")
    assert 'box.tool_chains = ["rustup"' in found["tool chains"].fix


def test_a_gate_that_was_not_run_names_the_option_that_runs_it(tmp_path: Path) -> None:
    says = examined(tmp_path, {}, checks__gate="make test")["gate"].says
    named = re.findall(r"--[a-z-]+", says)
    assert named
    root: Any = get_command(app)
    options = [option for parameter in root.commands["doctor"].params for option in parameter.opts]
    assert set(named) <= set(options)


def test_the_gate_is_tried_on_request(tmp_path: Path) -> None:
    found = examined(tmp_path, {}, gate=True, checks__gate="no-such-program", worktrees__setup="true")
    assert (found["set-up"].ok, found["gate"].ok) == (True, False)
    assert "no-such-program: command not found" in found["gate"].says
    assert found["gate"].fix.startswith("no-such-program is not visible in the sandbox")


@pytest.mark.parametrize(
    ("header", "body", "keys", "says"),
    [
        ("gpgsig -----BEGIN SSH SIGNATURE-----\n -----END SSH SIGNATURE-----\n", "", {}, "are signed, but "),
        ("", "\nSigned-off-by: A <a@b.c>\n", {}, "are signed off, but "),
        ("", "\nSigned-off-by: A <a@b.c>\n", {"git__sign_off": True}, ""),
        ("", "\nIt was not Signed-off-by: anybody\n", {}, ""),
    ],
)
def test_a_repository_whose_commits_are_signed_is_noticed(
    tmp_path: Path, header: str, body: str, keys: dict[str, Any], says: str
) -> None:
    project = make_repository(tmp_path / "project")
    tree, parent = git(project, "rev-parse", "HEAD^{tree}"), git(project, "rev-parse", "HEAD")
    for _ in range(20):
        who = "A <a@b.c> 1 +0000"
        raw = f"tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n{header}\nsubject\n{body}"
        (tmp_path / "commit").write_text(raw)
        parent = git(project, "hash-object", "-t", "commit", "-w", str(tmp_path / "commit"))
    git(project, "update-ref", "HEAD", parent)
    found = examined(tmp_path, {}, **keys).get("signatures")
    assert (found is not None and found.ok and says in found.says) if says else found is None


def test_a_branch_in_the_way_of_result_branches_is_found_before_a_run_is_refused(tmp_path: Path) -> None:
    git(make_repository(tmp_path / "project"), "branch", "fleet")
    found = examined(tmp_path, {})["repository"]
    assert not found.ok
    assert "git branch -m fleet" in found.fix


def test_the_tested_pythons_are_the_same_everywhere() -> None:
    minors = list(dict.fromkeys(version.rpartition(".")[0] for version in TESTED_PYTHONS))
    prefix = "Programming Language :: Python :: "
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [name.removeprefix(prefix) for name in project["classifiers"] if prefix in name] == minors
    assert json.dumps(minors) in (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    *others, last = TESTED_PYTHONS
    page = " ".join((ROOT / "docs" / "installation.md").read_text().split())
    assert f"Python {', '.join(others)} and {last}." in page
    assert f"Python {minors[0]} to {minors[-1]}," in page


def test_a_python_that_was_not_tested_is_named_with_those_that_were() -> None:
    assert python_finding("3.11.2", "/usr/bin/python3") == Finding("python", ok=True, says="3.11.2 at /usr/bin/python3")
    other = python_finding("3.11.99", "/usr/bin/python3")
    assert other.ok
    assert "tested with 3.11.2" in other.says
    assert (other.state, "not tested" in other.says) == ("warning", True)
