"""Go: modules, workspaces, vendored and downloaded modules."""

import re
from collections.abc import Iterator

from fleet.recipes.recipe import MAKE_TOOLS, ROOT, TOOLS, Reasoned, Recipe, joined
from fleet.recipes.tree import Tree

CACHE = {"GOCACHE": Reasoned("/tmp/go-build", "the build cache, in a folder that can be written")}  # noqa: S108 - in the box
FOLDER = re.compile(r"^\s*(?:use\s+)?(\.[\w./-]*)\s*(?://.*)?$", re.MULTILINE)


def detect(tree: Tree) -> Iterator[Recipe]:
    if tree.has("go.work"):
        folders = FOLDER.findall(tree.text("go.work"))
        places = " ".join(
            dict.fromkeys(f"./{folder.removeprefix('./').strip('/')}/...".replace("//", "/") for folder in folders)
        )
        places = places.replace("./.", "./") if places == "././..." else places
        kind, gate, why = "a Go workspace", f"go test {places or './...'}", "go.work lists its modules"
    elif tree.has("go.mod"):
        kind, gate, why = "Go", "go test ./...", "go.mod is Go's"
    else:
        return
    modules = "".join(map(tree.text, tree.matching("go.mod", "*/go.mod")))
    requires = re.search(r"^\s*(?:require\s+)?[\w-]+(?:\.[\w-]+)+/\S+ v\d", modules, re.MULTILINE) is not None
    if not requires or tree.has("vendor/modules.txt"):
        yield Recipe(kind, gate, why, environment=CACHE)
        return
    place = Reasoned(f"{ROOT}/{TOOLS}/go", "where the set-up puts the modules")
    yield Recipe(
        kind,
        gate,
        why,
        setup=joined(MAKE_TOOLS, "go mod download"),
        setup_why="downloads the modules that go.mod names",
        needs_network=True,
        environment={**CACHE, "GOMODCACHE": place},
    )
    yield Recipe(kind, gate, why, environment=CACHE)
