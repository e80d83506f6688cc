"""What CI runs, as evidence: which command is the project's own test, and commands that nothing else names.

No YAML parser: the files may be malformed or hostile, and only single lines matter.
"""

import re
from collections.abc import Iterator

from fleet.recipes.recipe import Recipe, is_command
from fleet.recipes.tree import Tree

FILES = (
    *(".github/workflows/*.yml", ".github/workflows/*.yaml", ".gitlab-ci.yml", ".circleci/config.yml", ".travis.yml"),
    *("azure-pipelines.yml", "Jenkinsfile", ".woodpecker.yml", ".drone.yml", ".buildkite/pipeline.yml", ".cirrus.yml"),
    *("bitbucket-pipelines.yml", "appveyor.yml", ".ci/run"),
)
MOST_FILES = 20
LONGEST_LINE = 500  # characters; a longer one is not a command that a person reads
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
    """The lines in CI files that look like a test command, each with its file."""
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


def detect(tree: Tree) -> Iterator[Recipe]:
    for command, name in commands(tree):
        yield Recipe("what CI runs", command, f"{name} runs it")


def names(recipe: Recipe, lines: tuple[tuple[str, str], ...]) -> str:
    """The CI file that runs what this recipe runs, in its own words; empty if none does."""
    wanted = words(recipe.gate)
    return next((name for command, name in lines if wanted and wanted <= words(command)), "")


def words(command: str) -> frozenset[str]:
    """The words that say what a command does: without interpreters, options and the manager's prefixes."""
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
