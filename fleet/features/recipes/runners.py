"""Task runners and scripts: make, just, Task, mise, and scripts with names of tests."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from fleet.core.base.forges import FORGES
from fleet.features.recipes.recipe import MAKE_TOOLS, TOOLS, Recipe, is_command
from fleet.features.recipes.tree import Tree, table

TASKS = ("test", "tests", "check", "unittest", "unit", "test-unit", "ci")
MAKEFILES = ("Makefile", "makefile", "GNUmakefile")
JUSTFILES = ("justfile", "Justfile", ".justfile")
TASKFILES = ("Taskfile.yml", "Taskfile.yaml", "taskfile.yml", "Taskfile.dist.yml")
SCRIPTS = (
    *(
        "test.sh",
        "tests.sh",
        "run_tests.sh",
        "run-tests.sh",
        "runtests.sh",
        "scripts/test",
        "scripts/test.sh",
        "script/test",
    ),
    *("bin/test", "ci/test.sh", "tests/run.sh", "test/run.sh", "tests/test.sh", "test/test.sh", "tests/run_tests.sh"),
    *("tests/runtests.sh", "runtests.py", "run_tests.py", "tests/run.py", "tests/runtests.py", "do", "t/run.sh"),
)
INTERPRETERS = {".py": "python3", ".sh": "sh"}
INTERPOLATION = re.compile(r"\{\{|`|^\s*#!")
JUST = f"{TOOLS}/just/bin"


def detect(tree: Tree) -> Iterator[Recipe]:
    yield from _make(tree)
    yield from _just(tree)
    name = tree.first(*TASKFILES)
    for task in _keys(tree.text(name), 2):
        yield Recipe("Task", f"task {task}", f"{name} has a task {task!r}")
    mise = tree.first("mise.toml", ".mise.toml")
    for task in TASKS:
        if task in table(tree.toml(mise), "tasks"):
            yield Recipe("mise", f"mise run {task}", f"{mise} has a task {task!r}")
    yield from _scripts(tree)


def _make(tree: Tree) -> Iterator[Recipe]:
    name = tree.first(*MAKEFILES)
    text = tree.text(name)
    targets = {
        word
        for line in re.findall(r"^([A-Za-z][\w .-]{0,200}?)\s*:(?![=:])", text, re.MULTILINE)
        for word in line.split()
    }
    for task in TASKS:
        if task in targets:
            yield Recipe("make", f"make {task}", f"{name} has a target {task!r}")


def _just(tree: Tree) -> Iterator[Recipe]:
    name = tree.first(*JUSTFILES)
    for task, body in _recipes_of_just(tree.text(name)):
        bare = Recipe("just", f"just {task}", f"{name} has a recipe {task!r}")
        if tree.has_program("just"):
            yield bare
            continue
        if body:
            why = f"{name} has a recipe {task!r}, called directly because just is not installed"
            yield replace(bare, gate=body, why=why)
        install = f"{MAKE_TOOLS} && python3 -m venv {TOOLS}/just && {JUST}/pip install -q --no-cache-dir rust-just"
        yield replace(
            bare, setup=install, setup_why="installs just, which this machine lacks", needs_network=True, bin=(JUST,)
        )


def _recipes_of_just(text: str) -> Iterator[tuple[str, str]]:
    """Yield the recipes with names of tests, and their commands if these don't use features of just."""
    blocks = dict(re.findall(r"^@?([\w-]+)\s*:(?!=)[ \t]*(?:#.*)?\n((?:[ \t]+.*(?:\n|\Z))*)", text, re.MULTILINE))
    for task in TASKS:
        if task in blocks:
            lines = [line.strip().lstrip("@") for line in blocks[task].splitlines() if line.strip()]
            plain = lines and not any(map(INTERPOLATION.search, lines)) and all(map(is_command, lines))
            yield task, " && ".join(lines) if plain else ""
        elif re.search(rf"^@?{re.escape(task)}\b[^:\n=]*:(?!=)", text, re.MULTILINE):
            yield task, ""  # with parameters or dependencies


def _keys(text: str, indent: int) -> Iterator[str]:
    """Yield the tasks of a Taskfile with names of tests."""
    for task in TASKS:
        if re.search(rf"^ {{{indent}}}{re.escape(task)}:", text, re.MULTILINE):
            yield task


def _scripts(tree: Tree) -> Iterator[Recipe]:
    for name in SCRIPTS:
        if not tree.has(name) or (name == "do" and "test" not in tree.text(name)):
            continue
        first = tree.text(name).partition("\n")[0]
        ending = f".{name.rpartition('.')[2]}"
        words = shlex.quote(name)
        if first.startswith("#!"):
            program = first.removeprefix("#!").replace("/usr/bin/env", "").split() or ["sh"]
            known = program[0].rpartition("/")[2]
            gate = f"{known if known in {'bash', 'sh', 'python3', 'perl', 'ruby', 'node'} else 'sh'} {words}"
        else:
            gate = f"{INTERPRETERS.get(ending, 'sh')} {words}"
        yield Recipe("a script", f"{gate} test" if name == "do" else gate, f"found {name}")


# ---- ci --------------------------------------------------------------------------------------------------------------
# Commands in CI files: evidence for the project's own test command, and further candidates.
#
# This does not use a YAML parser, because the files may be malformed or hostile, and single lines are sufficient.


FILES = (
    *(name for each in FORGES for name in each.ci_files),
    *(".circleci/config.yml", ".travis.yml"),
    *("azure-pipelines.yml", "Jenkinsfile", ".woodpecker.yml", ".drone.yml", ".buildkite/pipeline.yml", ".cirrus.yml"),
    *("bitbucket-pipelines.yml", "appveyor.yml", ".ci/run"),
)
MOST_FILES = 20
LONGEST_LINE = 500  # characters; longer lines are not readable commands
TESTS = re.compile(
    r"\b(?:pytest|unittest|tox|nox|manage\.py test|npm (?:run )?test|npm t|pnpm .*test|yarn .*test|bun test|vitest|"
    r"jest|mocha|node --test|deno test|cargo test|go test|mvn|mvnw|gradlew?|ctest|(?:make|ninja) \w*(?:test|check)\w*|"
    r"meson test|rspec|rake|rails test|phpunit|pest|composer (?:run )?test|mix test|dotnet test|"
    r"just \w*(?:test|check)\w*|task \w*test\w*|prove|swift test|zig build test|dune test|bats|"
    r"[\w./-]*test[\w-]*\.(?:sh|py))\b"
)
KEY = re.compile(r"^(?:-\s+)?(?:run|script|command|sh|test)\s*:\s*")
NOT_TESTS = re.compile(
    r"^(?:name|uses|with|if|on|env|needs|key|path|pip3? install|python -m pip|npm (?:ci|install)|apt|sudo)\b|"
    r"\binstall\b|\$\{\{|^#|^echo\b"
)


def commands(tree: Tree) -> tuple[tuple[str, str], ...]:
    """Return the lines in CI files that look like a test command, each with its file."""
    found = dict[str, str]()
    for name in tree.matching(*FILES)[:MOST_FILES]:
        for line in filter(_is_short, tree.text(name).splitlines()):
            text = KEY.sub("", line.strip().removeprefix("- ").strip()).strip().strip("'\"")
            if (
                TESTS.search(text)
                and not NOT_TESTS.search(text)
                and is_command(text)
                and not text.endswith((":", "|", "\\"))
            ):
                found.setdefault(text, name)
    return tuple(found.items())


def _is_short(line: str) -> bool:
    return len(line) <= LONGEST_LINE


def detect_ci(tree: Tree) -> Iterator[Recipe]:
    for command, name in commands(tree):
        yield Recipe("a CI command", command, f"{name} runs it")


def names(recipe: Recipe, lines: tuple[tuple[str, str], ...]) -> str:
    """Return the CI file that runs the same command as the recipe, or empty if there is none."""
    wanted = words(recipe.gate)
    return next((name for command, name in lines if wanted and wanted <= words(command)), "")


def words(command: str) -> frozenset[str]:
    """Return the significant words of a command, without interpreters, options and prefixes of package managers."""
    found = re.findall(r"[\w./:-]+", command.rpartition("&& ")[2])
    dull = {
        "python",
        "python3",
        "run",
        "bundle",
        "exec",
        "npx",
        "sh",
        "bash",
        "./...",
        "php",
        ".venv/bin/python",
        "uv",
        "poetry",
        "pdm",
    }
    return frozenset(word.rpartition("/")[2] for word in found if word not in dull and not word.startswith("-"))
