"""Find missing dependencies in the output of a failed trial, and add them to the recipe. Pure: text in, recipe out."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from fleet.features.recipes.recipe import Reasoned, Recipe, is_command, joined
from fleet.features.recipes.tree import Tree

NO_NETWORK = re.compile(
    r"EAI_AGAIN|getaddrinfo|Could not resolve host|Temporary failure in name resolution|Name or service not known|"
    r"Network is unreachable|ENETUNREACH|ENOTFOUND|Failed to establish a new connection|dns error|no such host|"
    r"UnknownHostException|Couldn't resolve host|failed to lookup address|nodename nor servname|dial tcp: lookup|"
    r"Could not fetch specs|Could not reach host|Could not find a version that satisfies",
    re.IGNORECASE,
)
NO_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named ['\"]?([\w.]{1,100})")
NO_VARIABLE = re.compile(
    r"KeyError: ['\"]([A-Z][A-Z0-9_]{1,60})['\"]|"
    r"\b([A-Z][A-Z0-9_]{2,60})\b (?:is not set|is required|must be set|is missing|not defined)"
)
NO_IDENTITY = re.compile(r"Please tell me who you are|empty ident name|unable to auto-detect email")
NO_TESTS = re.compile(
    r"^Ran 0 tests|no tests ran|collected 0 items|No tests were found!!!|No tests found|No test files found|"
    r"\[no test files\]|^running 0 tests|^1\.\.0$|^# tests 0$|Nothing to be done for ['`](?:test|check)|"
    r"No tests executed|0 examples, 0 failures|There are no tests to run|no tests defined",
    re.MULTILINE | re.IGNORECASE,
)
SOME_TESTS = re.compile(
    r"^Ran [1-9]\d* test|[1-9]\d* passed|^running [1-9]\d* test|^ok\s+\S+\s+[\d.(]|# (?:pass|tests) [1-9]|"
    r"Tests:\s+[1-9]|[1-9]\d* passing|tests passed|^ok \d|[1-9]\d* examples?|OK \([1-9]",
    re.MULTILINE,
)
PRIVATE = re.compile(
    r"(?:^|/)(?:\.env(?:\..*)?|.*\.(?:pem|key|p12|pfx|jks|keystore)|id_[a-z0-9]+|"
    r".*(?:secret|credential|token|password).*|\.npmrc|\.netrc|\.pypirc)$",
    re.IGNORECASE,
)
"""Names of files that may contain secrets."""
MADE = re.compile(
    r"(?:^|/)(?:node_modules|\.?venv|env|target|build|dist|out|bin|obj|__pycache__|coverage|htmlcov|"
    r"\.(?:git|tox|nox|mypy_cache|pytest_cache|ruff_cache|gradle|idea|vscode|cache|next|DS_Store|hypothesis|fleet-tools)|"
    r".*\.(?:pyc|log|o|so|egg-info|tmp|swp))/?$"
)
"""Names of files and folders that tools generate."""
EXAMPLES = (".env.example", ".env.sample", ".env.template", ".env.dist", "env.example", ".env.test.example")
MOST_INCLUDED = 5
SHORTEST_NAME = 5  # characters; shorter names may occur in any output by chance

WHO = Reasoned("fleet", "the tests make commits, and git requires an author")
IDENTITY: Mapping[str, Reasoned] = {
    "GIT_AUTHOR_NAME": WHO,
    "GIT_AUTHOR_EMAIL": WHO._replace(value="fleet@localhost"),
    "GIT_COMMITTER_NAME": WHO,
    "GIT_COMMITTER_EMAIL": WHO._replace(value="fleet@localhost"),
}


class Remedied(NamedTuple):
    """A recipe with an added dependency, and the reason."""

    recipe: Recipe
    because: str


def remedies(recipe: Recipe, output: str, tree: Tree) -> Iterator[Remedied]:
    """Yield recipes that add the dependencies missing in the output, the most likely first."""
    for remedy in (_with_source_path, _with_ignored_files, _with_example, _with_variables, _with_identity, _with_build):
        changed = remedy(recipe, output, tree)
        if changed is not None and changed.recipe.identity != recipe.identity:
            yield changed


def wants_network(output: str) -> bool:
    """Return whether the command failed for lack of network access."""
    return NO_NETWORK.search(output) is not None


def ran_nothing(output: str) -> bool:
    """Return whether a passing command reports that it did not run any tests."""
    return NO_TESTS.search(output) is not None and SOME_TESTS.search(output) is None


def private_files(tree: Tree) -> tuple[str, ...]:
    """Return ignored files that may contain secrets. They are only copied if the configuration lists them."""
    return tuple(name for name in tree.ignored if PRIVATE.search(name) and "/" not in name)


# ---- remedies -------------------------------------------------------------------------------------------------------


def _with_source_path(recipe: Recipe, output: str, tree: Tree) -> Remedied | None:
    """Add the folder of a project module that Python did not find."""
    for module in dict.fromkeys(NO_MODULE.findall(output)):
        name = module.partition(".")[0]
        paths = tree.matching(f"*/{name}/__init__.py", f"*/{name}.py")
        for path in paths:
            folder = path.removesuffix("/__init__.py").rpartition("/")[0]
            if (
                folder
                and folder.count("/") <= 1
                and not folder.startswith("test")
                and is_command(folder)
                and ":" not in folder
            ):
                why = f"{name} is in {folder}, and must be imported from the worktree"
                variables = {**recipe.environment, "PYTHONPATH": Reasoned(folder, why)}
                return Remedied(replace(recipe, environment=variables), f"the module {name} is in {folder}")
    return None


def _with_ignored_files(recipe: Recipe, output: str, tree: Tree) -> Remedied | None:
    """Add ignored files that the output mentions, such as downloaded data."""
    named = [
        name for name in tree.ignored if _is_named(name, output) and not PRIVATE.search(name) and not MADE.search(name)
    ]
    if not named:
        return None
    why = "the tests need it, but git ignores it"
    added = tuple(Reasoned(f"/{name}", why) for name in named[:MOST_INCLUDED])
    include = tuple(dict.fromkeys((*recipe.include, *added)))
    return Remedied(replace(recipe, include=include), f"the output mentions {named[0]}, which git ignores")


def _is_named(name: str, output: str) -> bool:
    if name.endswith("/") or "/" in name:
        return name in output
    return len(name) >= SHORTEST_NAME and name in output


def _with_example(recipe: Recipe, output: str, tree: Tree) -> Remedied | None:
    """Copy the example of an .env file if the output asks for the file."""
    example = tree.first(*EXAMPLES)
    target = ".env"
    if not example or tree.has(target) or (target not in output and not _asked_for(output, tree.text(example))):
        return None
    copy = f"cp {example} {target}"
    if copy in recipe.setup:
        return None
    why = f"the tests read {target}, and {example} is the repository's example of it"
    setup_why = "; ".join(filter(None, (recipe.setup_why, why)))
    return Remedied(replace(recipe, setup=joined(copy, recipe.setup), setup_why=setup_why), f"{target} is missing")


def _with_variables(recipe: Recipe, output: str, tree: Tree) -> Remedied | None:
    """Set missing variables that an example of an .env file defines."""
    values = _variables(tree.text(tree.first(*EXAMPLES)))
    wanted = [name for name in _asked_for(output, "\n".join(f"{name}=" for name in values)) if values[name]]
    new = {
        name: Reasoned(values[name], "the tests need it, with the value from the repository's example")
        for name in wanted
    }
    if not new:
        return None
    all_values = {
        name: Reasoned(value, "the value from the repository's example") for name, value in values.items() if value
    }
    return Remedied(replace(recipe, environment={**all_values, **new, **recipe.environment}), f"{wanted[0]} is not set")


def _asked_for(output: str, example: str) -> list[str]:
    missing = {name for found in NO_VARIABLE.findall(output) for name in found if name}
    return [name for name in _variables(example) if name in missing]


def _variables(text: str) -> dict[str, str]:
    """Return the plain variables of an .env file, without those that use expansions."""
    found = re.findall(r"^(?:export )?([A-Za-z_][A-Za-z0-9_]{0,60})=([^\n]{0,200})$", text, re.MULTILINE)
    return {
        name: value for name, raw in found if "$" not in (value := raw.strip().strip("'\"")) and (value.isprintable())
    }


def _with_identity(recipe: Recipe, output: str, tree: Tree) -> Remedied | None:
    del tree
    if NO_IDENTITY.search(output) is None or "GIT_AUTHOR_NAME" in recipe.environment:
        return None
    return Remedied(
        replace(recipe, environment={**recipe.environment, **IDENTITY}), "git requires an author for commits"
    )


def _with_build(recipe: Recipe, output: str, tree: Tree) -> Remedied | None:
    """Build before the tests if they run on the build output."""
    scripts = tree.json("package.json").get("scripts")
    has_build = isinstance(scripts, dict) and "build" in scripts
    if not has_build or "run build" in recipe.gate or re.search(r"(?:dist|build|lib|out)/", output) is None:
        return None
    if re.search(r"Cannot find module|ERR_MODULE_NOT_FOUND|Could not find|ENOENT|Failed to resolve", output) is None:
        return None
    why = f"{recipe.why}, and the tests run on the output of `npm run build`"
    return Remedied(replace(recipe, gate=f"npm run build && {recipe.gate}", why=why), "the tests need a build")
