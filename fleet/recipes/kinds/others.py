"""Kinds of which a marker says everything: one row each."""

from collections.abc import Iterator
from typing import NamedTuple

from fleet.recipes.recipe import MAKE_TOOLS, ROOT, TOOLS, Reasoned, Recipe, joined
from fleet.recipes.tree import Tree


class Row(NamedTuple):
    """A kind of project: the files it is known by, and its commands."""

    kind: str
    markers: tuple[str, ...]
    gate: str
    setup: str = ""
    """What fetches dependencies, where one of `needs` is there."""
    needs: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    """Folders for what its tools write."""


PLACE = f"{ROOT}/{TOOLS}"
MIX = (("MIX_HOME", f"{PLACE}/mix"), ("HEX_HOME", f"{PLACE}/hex"))
DOTNET = (("DOTNET_CLI_HOME", "/tmp/dotnet"), ("NUGET_PACKAGES", f"{PLACE}/nuget"), ("DOTNET_NOLOGO", "1"))  # noqa: S108
ROWS = (
    Row(
        "Elixir",
        ("mix.exs",),
        "mix test",
        "mix local.hex --force && mix local.rebar --force && mix deps.get",
        ("mix.lock",),
        MIX,
    ),
    Row("Erlang", ("rebar.config",), "rebar3 eunit", "rebar3 get-deps", ("rebar.lock",)),
    Row(".NET", ("*.sln", "*.slnx"), "dotnet test", "dotnet restore", ("*.sln", "*.slnx"), DOTNET),
    Row(".NET", ("*.csproj", "*.fsproj", "*/*.csproj"), "dotnet test", "dotnet restore", ("*proj",), DOTNET),
    Row("Swift", ("Package.swift",), "swift test", "swift package resolve", ("Package.resolved",)),
    Row("Dart", ("pubspec.yaml",), "dart test", "dart pub get", ("pubspec.yaml",), (("PUB_CACHE", f"{PLACE}/pub"),)),
    Row("Zig", ("build.zig",), "zig build test"),
    Row("Haskell with Stack", ("stack.yaml",), "stack test"),
    Row("Haskell with Cabal", ("*.cabal", "cabal.project"), "cabal test all"),
    Row("OCaml with dune", ("dune-project",), "dune test"),
    Row("Clojure", ("project.clj",), "lein test"),
    Row("Clojure", ("deps.edn",), "clojure -M:test"),
    Row("Julia", ("Project.toml",), "julia --project=. -e 'using Pkg; Pkg.test()'"),
    Row("R", ("DESCRIPTION",), "Rscript -e 'testthat::test_local()'"),
    Row("Nim", ("*.nimble",), "nimble test"),
    Row("Crystal", ("shard.yml",), "crystal spec", "shards install", ("shard.lock",)),
    Row("Lua with busted", (".busted", "spec/*_spec.lua"), "busted"),
    Row("Perl", ("t/*.t",), "prove -lr t"),
    Row("Tcl", ("tests/all.tcl",), "tclsh tests/all.tcl"),
    Row("Tcl", ("all.tcl",), "tclsh all.tcl"),
    Row("Bazel", ("MODULE.bazel", "WORKSPACE", "WORKSPACE.bazel"), "bazel test //..."),
    Row("Bats", ("test/*.bats",), "bats -r test"),
    Row("Bats", ("tests/*.bats",), "bats -r tests"),
)


def detect(tree: Tree) -> Iterator[Recipe]:
    for row in ROWS:
        found = next((name for name in tree.matching(*row.markers) if _at_its_place(name, row)), "")
        if found:
            fetches = bool(row.setup) and bool(tree.matching(*row.needs))
            yield Recipe(
                row.kind,
                row.gate,
                f"there is {found}",
                setup=joined(MAKE_TOOLS, row.setup) if fetches else "",
                setup_why="fetches what the project requires" if fetches else "",
                needs_network=fetches,
                environment={name: Reasoned(value, "a folder that can be written") for name, value in row.environment},
            )


def _at_its_place(name: str, row: Row) -> bool:
    """Patterns cross folders; a marker counts as deep as it is written."""
    return any(name.count("/") == marker.count("/") for marker in row.markers) or (
        row.kind in {"Perl", "Bats"} and "/" in name
    )
