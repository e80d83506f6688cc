"""Find the recipes of a repository: for each project in it, and for the entire repository.

Candidates are tried in this order: commands that CI runs, commands of a kind of project, task runners and scripts.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from fleet.features.recipes import javascript, others, python, runners
from fleet.features.recipes.recipe import Recipe, with_needs_of
from fleet.features.recipes.tree import Tree

Detect = Callable[[Tree], Iterator[Recipe]]

FAMILIES: Mapping[str, Detect] = {
    "python": python.detect,
    "rust": others.detect_rust,
    "go": others.detect_go,
    "javascript": javascript.detect,
    "jvm": others.detect_jvm,
    "native": others.detect_native,
    "ruby": others.detect_ruby,
    "php": others.detect_php,
    "others": others.detect,
}
MANIFESTS = re.compile(
    r"pyproject\.toml|setup\.(?:py|cfg)|tox\.ini|pytest\.ini|requirements\.txt|manage\.py|Cargo\.toml|go\.mod|package\.json|deno\.jsonc?|pom\.xml|build\.gradle"
    r"(?:\.kts)?|CMakeLists\.txt|meson\.build|configure\.ac|Gemfile|composer\.json|mix\.exs|[^/]+\.(?:sln|csproj)|Package\.swift"
    r"|pubspec\.yaml|Makefile"
)
"""Files that make a folder a separate project."""
LOCKS = re.compile(
    r"(?:uv|poetry|pdm|Pipfile|Cargo|Gemfile|composer|mix|pubspec|rebar|bun|yarn)\.lock|pylock\.toml|"
    r"package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|bun\.lockb|go\.sum|gradle\.lockfile|Package\.resolved|"
    r"requirements[\w./-]*\.txt"
)
NOT_PROJECTS = re.compile(
    r"(?:^|/)(?:node_modules|vendor|third[-_]?party|external|examples?|samples?|fixtures?|testdata|test-data|templates?|docs?|"
    r"benchmarks?|tests?|\..*)(?:/|$)"
)
DEEPEST_PART = 3
MOST_PARTS = 12
MOST_CANDIDATES = 10


@dataclass(frozen=True, slots=True)
class ProjectPart:
    """A project in a folder of the repository, and its recipes, the most likely first."""

    folder: str
    recipes: tuple[Recipe, ...]


@dataclass(frozen=True, slots=True)
class FoundCommands:
    """The result of detection in a repository."""

    whole: tuple[Recipe, ...] = ()
    """Recipes for the entire repository, which are tried first if it has several parts."""
    parts: tuple[ProjectPart, ...] = ()


def find_recipes(tree: Tree) -> FoundCommands:
    lines = runners.commands(tree)
    parts = tuple(_parts(tree))
    needs = [part.recipes[0].within(part.folder) for part in parts]
    tasks = [variant for recipe in runners.detect(tree) for variant in _variants(recipe, needs)]
    if len(parts) > 1:
        ranked = tuple(replace(part, recipes=_rank(part.recipes, lines)) for part in parts)
        return FoundCommands(_rank(tasks, lines), ranked)
    own = [recipe.within(part.folder) for part in parts for recipe in part.recipes]
    said = {runners.words(recipe.gate) for recipe in (*own, *tasks)}
    others = [
        each
        for recipe in runners.detect_ci(tree)
        if runners.words(recipe.gate) not in said
        for each in _variants(recipe, needs)
    ]
    recipes = (*_rank((*own, *tasks), lines), *others)
    return FoundCommands(parts=(ProjectPart("", recipes[:MOST_CANDIDATES]),) if recipes else ())


def _variants(recipe: Recipe, needs: list[Recipe]) -> Iterator[Recipe]:
    """Yield a recipe for the entire repository without and with the setup commands of all parts."""
    prepared = with_needs_of(recipe, needs)
    if prepared.needs_network and not recipe.needs_network:
        yield recipe
    yield prepared


def _rank(recipes: Iterable[Recipe], lines: tuple[tuple[str, str], ...]) -> tuple[Recipe, ...]:
    """Deduplicate recipes, and put those that CI runs first."""
    once = dict[object, Recipe]()
    for recipe in recipes:
        name = runners.names(recipe, lines)
        once.setdefault(recipe.identity, replace(recipe, why=f"{recipe.why}, and {name} runs it") if name else recipe)
    ranked = sorted(once.values(), key=lambda recipe: not runners.names(recipe, lines))
    return tuple(ranked[:MOST_CANDIDATES])


# ---- projects -------------------------------------------------------------------------------------------------------


def _parts(tree: Tree) -> Iterator[ProjectPart]:
    """Yield each kind of project at the root, and in folders that no folder above them covers for that kind."""
    parts = list(islice(_all_parts(tree), MOST_PARTS))
    strong = [part for part in parts if not part.recipes[0].only_builds]
    yield from strong or parts
    taken = {part.folder for part in parts}
    if "" not in taken and not any(runners.detect(tree)):
        yield from (part for part in _parts_with_tasks(tree) if part.folder not in taken)


def _all_parts(tree: Tree) -> Iterator[ProjectPart]:
    covered = dict[str, list[str]]()
    for folder in ("", *_project_folders(tree)):
        below = tree.at(folder) if folder else tree
        for family, detect in FAMILIES.items():
            if any(_is_below(folder, above) for above in covered.get(family, ())):
                continue
            if found := tuple(islice(detect(below), MOST_CANDIDATES)):
                locks = tuple(name for name in below.names if LOCKS.fullmatch(name))
                yield ProjectPart(folder, tuple(replace(each, locks=locks if each.setup else ()) for each in found))
                if family != "go" or below.has("go.work"):  # a module does not test the modules below it
                    covered.setdefault(family, []).append(folder)


def _parts_with_tasks(tree: Tree) -> Iterator[ProjectPart]:
    """Yield folders with a task runner that has a test task."""
    for folder in _project_folders(tree):
        if "/" not in folder and (found := tuple(runners.detect(tree.at(folder)))):
            yield ProjectPart(folder, found)


def _project_folders(tree: Tree) -> tuple[str, ...]:
    paths = {
        name.rpartition("/")[0]
        for name in tree.names
        if "/" in name and name.count("/") <= DEEPEST_PART and MANIFESTS.fullmatch(name.rpartition("/")[2])
    }
    return tuple(
        sorted((path for path in paths if not NOT_PROJECTS.search(path)), key=lambda path: (path.count("/"), path))
    )


def _is_below(folder: str, above: str) -> bool:
    return not above or folder == above or folder.startswith(f"{above}/")
