"""Tool chains of a home: what the box shows of them, and nothing beside it."""

from pathlib import Path

import pytest

from fleet.app.wiring import Wiring
from fleet.config.load import load_config
from fleet.core.plans.plan import Criterion
from fleet.errors import UsageError
from tests.worktrees.conftest import make_repository
from worktrees.leases.run_worktrees import open_trial_worktrees
from worktrees.sandbox.tool_chains import TOOL_CHAINS, found_in, shown_by
from worktrees.target.target import inspect

PROGRAMS = {
    "rustup": (".cargo/bin/cargo", "cargo"),
    "nvm": (".nvm/versions/node/v22.3.0/bin/node", "node"),
    "fnm": (".local/share/fnm/node-versions/v22.3.0/installation/bin/fnm-node", "fnm-node"),
    "volta": (".volta/tools/image/node/22.3.0/bin/volta-node", "volta-node"),
    "asdf": (".asdf/shims/elixir", "elixir"),
    "mise": (".local/share/mise/shims/just", "just"),
    "uv": (".local/bin/uv", "uv"),
    "pyenv": (".pyenv/shims/python3.9", "python3.9"),
    "rbenv": (".rbenv/shims/ruby", "ruby"),
    "sdkman": (".sdkman/candidates/java/current/bin/javac", "javac"),
    "go": ("go/bin/gopls", "gopls"),
    "bun": (".bun/bin/bun", "bun"),
    "deno": (".deno/bin/deno", "deno"),
    "ghcup": (".ghcup/bin/ghc", "ghc"),
    "juliaup": (".juliaup/bin/julia", "julia"),
}
"""A program of each, where its installer puts it."""
SECRETS = (
    ".cargo/credentials.toml",
    ".cargo/config.toml",
    ".cargo/registry/token",
    ".rustup/secret",
    ".nvm/.git-credentials",
    ".local/bin/private-script",
    ".local/share/uv/credentials/credentials.toml",
    ".local/share/mise/secret",
    ".asdf/.ssh-key",
    ".sdkman/etc/config",
    ".volta/secret",
    ".deno/secret",
    ".bun/secret",
    ".juliaup/secret",
    ".julia/secret",
    ".ghcup/secret",
    ".pyenv/secret",
    ".rbenv/secret",
    "go/secret",
    ".ssh/id_ed25519",
    ".netrc",
    ".npmrc",
)


def write(home: Path, name: str, text: str) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text, encoding="utf-8")
    (home / name).chmod(0o755)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with every tool chain, and with secrets beside each."""
    home = tmp_path / "home"
    for path, name in PROGRAMS.values():
        write(home, path, f"#!/bin/sh\necho {name} works\n")
    for secret in SECRETS:
        write(home, secret, "hunter2")
    return home


def test_every_tool_chain_has_a_home_to_be_tested_in() -> None:
    assert PROGRAMS.keys() == TOOL_CHAINS.keys()


@pytest.mark.parametrize("name", TOOL_CHAINS)
def test_a_tool_chain_is_found_by_its_programs(name: str, tmp_path: Path) -> None:
    write(tmp_path, PROGRAMS[name][0], "")
    assert name in found_in(tmp_path)
    program = tmp_path / PROGRAMS[name][0]
    assert str(program.parent) in shown_by([name], tmp_path).path


def test_a_home_without_tools_has_none(tmp_path: Path) -> None:
    write(tmp_path, ".cargo/credentials.toml", "")
    assert set(found_in(tmp_path)) <= {"go"}, "go may be in /usr/local"
    assert shown_by(["rustup", "nvm"], tmp_path).environment == {}


@pytest.mark.anyio
async def test_the_box_shows_the_tools_and_nothing_beside_them(home: Path) -> None:
    repository = make_repository(home.parent / "project")
    names = [name for _, name in PROGRAMS.values()]
    command = (
        f"for name in {' '.join(names)}; do $name || exit 1; done; grep -rqs hunter2 {home} && exit 3; ls -A {home}"
    )
    flags = {"state.dir": str(home.parent / "state"), "box.tool_chains": list(TOOL_CHAINS)}
    config = load_config(environ={}, user_file=None, flags=flags).config
    target = await inspect(repository)
    async with (
        open_trial_worktrees(target, Wiring(config, {"HOME": str(home)}).worktrees) as worktrees,
        worktrees.lease(target.base) as lease,
    ):
        check = await lease.check(Criterion(criterion="tools", run=command))
        assert check.passed, check.output
        assert "javac works" in check.output
        assert ".ssh" not in check.output
        assert not (await lease.check(Criterion(criterion="spoil", run=f"echo x > {home}/.bun/bin/bun"))).passed
    assert "bun works" in (home / ".bun/bin/bun").read_text(encoding="utf-8")


def test_a_link_shows_nothing_but_the_systems_own_programs(home: Path) -> None:
    (home / ".deno/bin/deno").unlink()
    (home / ".deno/bin").rmdir()
    (home / ".deno/bin").symlink_to(home / ".ssh")
    assert shown_by(["deno"], home).read_only == ()
    (home / ".deno/bin").unlink()
    (home / ".deno/bin").symlink_to("/usr/bin")
    assert shown_by(["deno"], home).read_only == (str(home / ".deno/bin"),)
    (home / ".deno/bin").unlink()
    (home / ".deno/bin").symlink_to(home)
    assert shown_by(["deno"], home).read_only == ()


def test_the_version_that_nvm_names_comes_first_else_the_newest(home: Path) -> None:
    for version in ("v9.0.0", "v20.1.0"):
        write(home, f".nvm/versions/node/{version}/bin/node", "")
    first = [Path(folder).parent.name for folder in shown_by(["nvm"], home).path]
    assert first == ["v22.3.0", "v20.1.0", "v9.0.0"]
    write(home, ".nvm/alias/default", "20\n")
    assert Path(shown_by(["nvm"], home).path[0]).parent.name == "v20.1.0"
    write(home, ".nvm/alias/default", "lts/*\n")
    assert Path(shown_by(["nvm"], home).path[0]).parent.name == "v22.3.0"


def test_one_that_is_not_known_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'rustup'"):
        shown_by(["rustupp"], Path("/nonexistent"))
