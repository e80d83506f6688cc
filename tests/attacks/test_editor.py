"""Agents that ask their client for what is not theirs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from agents.workers.acp_host import SERVED, RefusedError, TerminalHost
from tests.attacks.conftest import CANARY, Arena


def host_of(root: Path, kind: type[TerminalHost] = TerminalHost) -> TerminalHost:
    """The program beside an agent, without the agent."""
    return kind(os.path.realpath(root), "/tmp/fleet-report.json", cast("Any", None), cast("Any", None))  # noqa: S108


class Unchecked(TerminalHost):
    """The same without the defence."""

    def inside(self, path: str, *, links: bool) -> str:
        del links
        return path


async def asked(root: Path, kind: type[TerminalHost] = TerminalHost, **given: Any) -> object:
    """What it answers."""
    return await SERVED[given["do"]](host_of(root, kind), given)


async def test_57_an_agent_asks_its_client_for_files_outside_through_links_and_of_git(
    arena: Arena,
) -> None:
    tree, secret = arena.tree, arena.secret
    (tree / "link.txt").symlink_to(secret)
    (tree / "folder").symlink_to(secret.parent)
    (tree / ".git").mkdir(exist_ok=True)
    (tree / ".git" / "config").write_text(CANARY, encoding="utf-8")
    (tree / "own.txt").write_text("own", encoding="utf-8")
    (tree / "own-link.txt").symlink_to("own.txt")
    wanted = [secret, tree / "link.txt", tree / "folder" / secret.name, tree / ".git" / "config"]
    wanted.append(tree / ".." / secret.parent.name / secret.name)

    async def attack(**given: Any) -> Mapping[Path, object]:
        found = {}
        for path in wanted:
            try:
                found[path] = await asked(tree, path=str(path), **given)
            except (RefusedError, OSError) as error:
                found[path] = error
        return found

    assert all(isinstance(each, RefusedError) for each in (await attack(do="read")).values())
    assert all(isinstance(each, RefusedError) for each in (await attack(do="write", content="x")).values())
    assert await asked(tree, do="read", path=str(tree / "own-link.txt")) == "own"
    with pytest.raises(RefusedError, match="contains a symbolic link"):
        await asked(tree, do="write", path=str(tree / "own-link.txt"), content="x")
    with pytest.raises(RefusedError, match="is outside"):
        await asked(tree, do="create", command="cat secret", args=[], env={}, cwd=str(secret.parent))
    assert secret.read_text(encoding="utf-8") == CANARY
    found = await attack(do="read", kind=Unchecked)
    assert [CANARY in str(found[path]) for path in (secret, wanted[2], wanted[3], wanted[4])] == [True] * 4
