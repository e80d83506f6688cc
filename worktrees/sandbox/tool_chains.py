"""Tool chains in a user's home (rustup, nvm, uv …), and the parts of them that the box shows, read-only.

Each is a row of `TOOL_CHAINS`: its folders below the home, the programs' folders, and the variables it needs. Only
these parts are visible, each at its original path. Credentials, configuration and caches beside them stay hidden:
`~/.cargo` has a registry token, and `~/.local/share/uv` may have passwords.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.core.base.ids import did_you_mean
from fleet.errors import UsageError
from fleet.ports.agents import Extras
from fleet.ports.settings import BoxSection

IN_BOX = "/repo"  # the worktree, which these tools must trust
SYSTEM = ("/usr", "/opt", "/nix")  # allowed destinations of links


@dataclass(frozen=True, slots=True)
class ToolChain:
    """The parts of a tool chain in a home. Paths are relative to the home and may contain `*`."""

    name: str
    shows: tuple[str, ...]
    """Files and folders. Missing ones are left out."""
    path: tuple[str, ...]
    """Program folders in order. If several match a pattern, the newest version comes first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables. `{home}` is replaced by the home."""
    chosen: str = ""
    """A file with the version to use, such as nvm's alias."""
    system_path: tuple[str, ...] = ()
    """Program folders outside of the home, which the box shows anyway but does not have in its PATH."""


TOOL_CHAINS: Mapping[str, ToolChain] = {
    chain.name: chain
    for chain in (
        ToolChain(
            "rustup",
            (".rustup/toolchains", ".rustup/update-hashes", ".rustup/settings.toml", ".cargo/bin"),
            (".cargo/bin",),
            {"RUSTUP_HOME": "{home}/.rustup"},
        ),
        ToolChain("nvm", (".nvm/versions/node",), (".nvm/versions/node/*/bin",), chosen=".nvm/alias/default"),
        ToolChain("fnm", (".local/share/fnm/node-versions",), (".local/share/fnm/node-versions/*/installation/bin",)),
        ToolChain(
            "volta", (".volta/bin", ".volta/tools"), (".volta/tools/image/node/*/bin", ".volta/tools/image/yarn/*/bin")
        ),
        ToolChain(
            "asdf",
            (".asdf/asdf.sh", ".asdf/bin", ".asdf/lib", ".asdf/installs", ".asdf/plugins", ".asdf/shims"),
            (".asdf/shims", ".asdf/bin"),
            {"ASDF_DIR": "{home}/.asdf", "ASDF_DATA_DIR": "{home}/.asdf"},
        ),
        ToolChain(
            "mise",
            (".local/bin/mise", ".local/share/mise/installs", ".local/share/mise/shims", ".local/share/mise/plugins"),
            (".local/share/mise/shims",),
            {"MISE_DATA_DIR": "{home}/.local/share/mise", "MISE_TRUSTED_CONFIG_PATHS": IN_BOX},
        ),
        ToolChain(
            "uv",
            (".local/share/uv/python", ".local/bin/uv", ".local/bin/uvx"),
            (".local/bin", ".local/share/uv/python/*/bin"),
            {"UV_PYTHON_INSTALL_DIR": "{home}/.local/share/uv/python", "UV_PYTHON_DOWNLOADS": "never"},
        ),
        ToolChain(
            "pyenv",
            (".pyenv/bin", ".pyenv/libexec", ".pyenv/shims", ".pyenv/versions", ".pyenv/version", ".pyenv/plugins"),
            (".pyenv/shims", ".pyenv/bin"),
            {"PYENV_ROOT": "{home}/.pyenv"},
        ),
        ToolChain(
            "rbenv",
            (".rbenv/bin", ".rbenv/libexec", ".rbenv/shims", ".rbenv/versions", ".rbenv/version"),
            (".rbenv/shims", ".rbenv/bin"),
            {"RBENV_ROOT": "{home}/.rbenv"},
        ),
        ToolChain(
            "sdkman",
            (".sdkman/candidates",),
            tuple(f".sdkman/candidates/{name}/current/bin" for name in ("java", "gradle", "maven", "kotlin", "sbt")),
            {"JAVA_HOME": "{home}/.sdkman/candidates/java/current"},
        ),
        ToolChain(
            "go",
            ("sdk", "go/bin", ".local/go"),
            ("go/bin", ".local/go/bin", "sdk/go*/bin"),
            system_path=("/usr/local/go/bin",),
        ),
        ToolChain("bun", (".bun/bin",), (".bun/bin",)),
        ToolChain("deno", (".deno/bin",), (".deno/bin",)),
        ToolChain("ghcup", (".ghcup/bin", ".ghcup/ghc"), (".ghcup/bin",)),
        ToolChain("juliaup", (".juliaup/bin", ".julia/juliaup"), (".juliaup/bin",)),
    )
}


def found_in(home: Path) -> tuple[str, ...]:
    """Return the names of the tool chains in a home, by their program folders."""
    return tuple(name for name, chain in TOOL_CHAINS.items() if _folders(home, chain))


def with_tool_chains(box: BoxSection, home: Path) -> BoxSection:
    """Return the box with the parts of its tool chains. Raises `UsageError` for an unknown tool chain."""
    shown = shown_by(box.tool_chains, home)
    changed = {
        "read_only": (*box.read_only, *shown.read_only),
        "path": (*box.path, *shown.path),
        "environment": {**shown.environment, **box.environment},
    }
    return box.model_copy(update=changed)


def shown_by(names: Iterable[str], home: Path) -> Extras:
    """Return the parts that the box shows of these tool chains. Raises `UsageError` for an unknown tool chain."""
    chains = [_chain(name) for name in names]
    return Extras(
        read_only=tuple(dict.fromkeys(str(path) for chain in chains for path in _visible(home, chain))),
        path=tuple(dict.fromkeys(str(folder) for chain in chains for folder in _folders(home, chain))),
        environment={
            name: value.format(home=home)
            for chain in chains
            if any(_visible(home, chain))
            for name, value in chain.environment.items()
        },
    )


def _chain(name: str) -> ToolChain:
    if name not in TOOL_CHAINS:
        near = did_you_mean(name, TOOL_CHAINS)
        hint = f"use one of {', '.join(TOOL_CHAINS)}, or box.read_only and box.path for other tools"
        raise UsageError(f"box.tool_chains: unknown tool chain {name!r}{near}", hint=hint)
    return TOOL_CHAINS[name]


def _visible(home: Path, chain: ToolChain) -> Iterator[Path]:
    """Return the existing parts. A link could lead anywhere, so only links to system program folders are followed."""
    top = home.resolve()
    for shown in chain.shows:
        path = home / shown
        real = path.resolve()
        if path.exists() and (real == top / shown or any(real.is_relative_to(place) for place in SYSTEM)):
            yield path


def _folders(home: Path, chain: ToolChain) -> Sequence[Path]:
    visible = tuple(_visible(home, chain))
    found = [folder for pattern in chain.path for folder in _newest_first(home, pattern)]
    wanted = _wanted_version(home, chain)
    folders = sorted(found, key=lambda folder: not (wanted and any(part.startswith(wanted) for part in folder.parts)))
    system = [Path(folder) for folder in chain.system_path if Path(folder).is_dir()]
    return [*(folder for folder in folders if _is_shown(folder, visible)), *system]


def _is_shown(folder: Path, visible: Sequence[Path]) -> bool:
    """Whether the box has the folder: it is below a visible part, or contains a visible program."""
    return any(folder.is_relative_to(path) or path.parent == folder for path in visible)


def _newest_first(home: Path, pattern: str) -> list[Path]:
    folders = [path for path in home.glob(pattern) if path.is_dir()]
    return sorted(folders, key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))], reverse=True)


def _wanted_version(home: Path, chain: ToolChain) -> str:
    """Return the version in a file, as the folders are named. Empty for an alias of an alias."""
    try:
        text = (home / chain.chosen).read_text(encoding="utf-8").strip() if chain.chosen else ""
    except (OSError, UnicodeDecodeError):
        return ""
    return f"v{text.removeprefix('v')}" if re.fullmatch(r"v?\d+(?:\.\d+)*", text) else ""
