"""Runs whose workers call models, on a node behind a pipe: the calls are made here, and only here is there a key."""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from os import killpg
from pathlib import Path
from signal import SIGKILL

import pytest

from fleet.core.state.state import RunState
from tests.contract.conftest import acp_command, stand_in
from tests.e2e.conftest import Serve
from tests.e2e.stage import KEY, Done, Json, Stage, landed, program, script, solve, subtask
from tests.e2e.test_nodes import NodeAt
from tests.fleet.core.pretend import subtask_of
from tests.worktrees.conftest import git


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NodeAt]:
    node = NodeAt("one", tmp_path / "one", request.config.getoption("--ssh"))
    yield node
    for pid in node.pids:
        if program(pid):
            with suppress(ProcessLookupError):
                killpg(pid, SIGKILL)


def begin(stage: Stage, repository: Path, url: str, tables: str, *subtasks: Json, name: str = "r") -> tuple[str, ...]:
    config, plan = stage.room / f"{name}.toml", stage.room / f"{name}.json"
    config.write_text(tables)
    plan.write_text(json.dumps({"goal": "Write", "subtasks": subtasks}))
    at = ("--config", str(config), "--base-url", url, "--repo", str(repository))
    return ("run", "--plan", str(plan), "--name", name, "--yes", *at)


def state_of(stage: Stage, name: str = "r") -> RunState:
    state = stage.look(name)
    assert state is not None
    return state


def calls_of(stage: Stage, name: str = "r") -> dict[str, int]:
    return {id_: sum(each.spend.calls for each in one.attempts) for id_, one in state_of(stage, name).subtasks.items()}


def test_conversations_and_sessions_on_a_node_call_models_by_way_of_the_manager(
    stage: Stage, repository: Path, node: NodeAt, model: Serve, tmp_path: Path
) -> None:
    """No key is in the node's environment, and its boxes have no network; calls are counted here, as they happen."""
    node.make()
    (node.home / "node.toml").write_text(
        (node.home / "node.toml").read_text().replace("read_only = [", f'read_only = ["{sys.prefix}", ')
    )
    claude = stand_in(tmp_path / "claude-code")
    workers = f'[workers.session]\nkind = "claude-code"\ncommand = "{claude}"\n'
    report = {"report": '{"status": "done", "summary": "written"}'}
    agent = acp_command(tmp_path, {"turns": [[{"model": 1}, {"shell": "echo c > c.txt"}, report]]})
    workers += f"[workers.agent]\nkind = \"acp\"\ncommand = '''{shlex.join(agent)}'''\nmodel = \"claude-haiku-5-5\"\n"
    workers += f'read_only = ["{tmp_path}/acp agent"]\n'
    ids = {"a": "coder", "b": "session", "c": "agent"}
    subtasks = [subtask(id_, worker=worker) for id_, worker in ids.items()]
    played = script(*subtasks, workers={id_: [solve(id_, turns=3)] for id_ in ids})
    url = model(played)
    tables = workers + node.table(workers=3, checks=0)
    with stage.going(*begin(stage, repository, url, tables, *subtasks), at=repository) as going:
        stage.wait("r", lambda state: any(map(node_of, state.subtasks.values())), going)
        [environment] = {Path(f"/proc/{node.pids[-1]}/environ").read_bytes()}
        done: Done = going.done().ended(0)
    assert KEY.encode() not in environment
    assert "is unavailable" not in done.output
    here = f'{workers}[box]\nread_only = ["{sys.prefix}"]\n'
    stage.fleet(*begin(stage, repository, model(played), here, *subtasks, name="here"), at=repository).ended(0)
    assert sorted(landed(repository, "r")) == sorted(ids)
    assert git(repository, "rev-parse", "fleet/r^{tree}") == git(repository, "rev-parse", "fleet/here^{tree}")
    assert {id_: node_of(one) for id_, one in state_of(stage).subtasks.items()} == dict.fromkeys(ids, "one")
    assert calls_of(stage) == calls_of(stage, "here")
    assert state_of(stage).spent.calls == state_of(stage, "here").spent.calls
    for id_ in ("a", "b"):
        assert events(stage, id_, "r") == events(stage, id_, "here")
    assert sorted(events(stage, "c", "r")) == sorted(events(stage, "c", "here")), (
        "what an agent did comes with its calls"
    )
    node.has_left_nothing()


def node_of(subtask: object) -> str:
    attempts = getattr(subtask, "attempts", ())
    return str(attempts[-1].node) if attempts else ""


def events(stage: Stage, id_: str, name: str) -> list[str]:
    file = stage.folder(name).transcripts / f"{id_}.1.jsonl"
    return [json.loads(line)["event"] for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.thorough
def test_a_link_that_breaks_in_the_middle_of_a_call_costs_nothing(
    stage: Stage, repository: Path, node: NodeAt, model: Serve
) -> None:
    """The node's process outlives its link; that of the next link hands its stream over to it.

    Its error output would keep the link open, where that is a session of SSH.
    """
    node.make()
    links = node.home / "links"
    (node.home / "link").write_text(f'echo $$ >>"{links}"\ncat | setsid sh "{node.home}/start" 2>/dev/null | cat\n')
    tables = node.table(workers=1, checks=0).replace("/start", "/link")
    url = model(script(subtask("a"), pace={"think_s": 0.7}, workers={"a": [solve("a", turns=4)]}))
    with stage.going(*begin(stage, repository, url, tables, subtask("a")), at=repository) as going:
        stage.wait("r", lambda state: calls_in(state, "a") == 1, going)
        killpg(int(links.read_text().split()[-1]), SIGKILL)
        done = going.done().ended(0)
    done.says("node one is unavailable")
    assert done.output.count("node one connected") == 2
    assert landed(repository, "r") == ["a"]
    [attempt] = subtask_of(state_of(stage), "a").attempts
    assert (attempt.node, attempt.spend.calls) == ("one", events(stage, "a", "r").count("answer"))
    assert events(stage, "a", "r").count("system") == 1, "its conversation began once"
    assert len(node.pids) == 2
    node.has_left_nothing()


def calls_in(state: RunState, id_: str) -> int:
    return sum(each.spend.calls for each in subtask_of(state, id_).attempts) if id_ in state.subtasks else 0


@pytest.mark.thorough
def test_an_instruction_interrupts_a_command_on_a_node_that_never_would_end(
    stage: Stage, repository: Path, node: NodeAt, model: Serve
) -> None:
    node.make()
    commands = ["sleep 86400", "echo a > a.txt"]
    url = model(script(subtask("a"), workers={"a": [{"do": "shell", "commands": commands}]}))
    tables = node.table(workers=1, checks=0)
    with stage.going(*begin(stage, repository, url, tables, subtask("a")), at=repository) as going:
        stage.wait("r", lambda state: calls_in(state, "a") == 1, going)
        stage.fleet("tell", "a", "it never ends", "--interrupt", "--run", "r").ended(0)
        going.done().ended(0).says("interrupting instruction to a from")
    assert landed(repository, "r") == ["a"]
    [attempt] = subtask_of(state_of(stage), "a").attempts
    assert (attempt.node, len(attempt.instructions)) == ("one", 1)
    assert events(stage, "a", "r").count("operator") == 1
    node.has_left_nothing()


def test_a_conversation_on_a_node_whose_budget_is_spent_fails_and_nothing_more_is_called(
    stage: Stage, repository: Path, node: NodeAt, model: Serve
) -> None:
    node.make()
    url = model(script(subtask("a"), workers={"a": [solve("a", turns=6)] * 3}))
    tables = f'{node.table(workers=1, checks=0)}[workers.coder]\nkind = "coder"\nturns = 2\n'
    with stage.going(*begin(stage, repository, url, tables, subtask("a")), at=repository) as going:
        stage.wait("r", lambda state: _failed(state) is not None, going)
        going.kill()
    attempt = subtask_of(state_of(stage), "a").attempts[0]
    assert attempt.failure is not None
    assert (attempt.node, attempt.failure.kind, attempt.spend.calls) == ("one", "budget", 2)


def _failed(state: RunState) -> object:
    attempts = subtask_of(state, "a").attempts if "a" in state.subtasks else ()
    return attempts[0].failure if attempts else None
