"""Rust: cargo, workspaces, vendored and fetched crates."""

import re
from collections.abc import Iterator

from fleet.recipes.recipe import MAKE_TOOLS, ROOT, TOOLS, Reasoned, Recipe, joined
from fleet.recipes.tree import Tree, table

DEPENDENCIES = ("dependencies", "dev-dependencies", "build-dependencies")


def detect(tree: Tree) -> Iterator[Recipe]:
    if not tree.has("Cargo.toml"):
        return
    is_workspace = "workspace" in tree.toml("Cargo.toml")
    kind = "a Rust workspace" if is_workspace else "Rust with cargo"
    gate = "cargo test --workspace" if is_workspace else "cargo test"
    why = "Cargo.toml is cargo's" + (", and lists a workspace" if is_workspace else "")
    if _is_offline(tree):
        yield Recipe(kind, gate, why)
        return
    locked = " --locked" if tree.has("Cargo.lock") else ""
    place = Reasoned(f"{ROOT}/{TOOLS}/cargo", "where the set-up puts the crates")
    yield Recipe(
        kind,
        f"{gate} --offline",
        why,
        setup=joined(MAKE_TOOLS, f"cargo fetch{locked}"),
        setup_why="fetches the crates that Cargo.toml names",
        needs_network=True,
        environment={"CARGO_HOME": place},
    )
    yield Recipe(kind, f"{gate} --offline", why)


def _is_offline(tree: Tree) -> bool:
    """Whether every crate is in the repository."""
    config = tree.text(tree.first(".cargo/config.toml", ".cargo/config"))
    if re.search(r"^\s*replace-with\s*=", config, re.MULTILINE):
        return True
    lock = tree.text("Cargo.lock")
    if lock:
        return "source = " not in lock
    manifests = [tree.toml(name) for name in tree.matching("Cargo.toml", "*/Cargo.toml")]
    workspace = [table(manifest, "workspace") for manifest in manifests]
    return not any(_fetches(table(each, key)) for each in (*manifests, *workspace) for key in DEPENDENCIES)


def _fetches(dependencies: dict[str, object]) -> bool:
    return any(
        not isinstance(wanted, dict) or not ("path" in wanted or "workspace" in wanted)
        for wanted in dependencies.values()
    )
