"""Python: pytest, unittest, Django; tox and nox as evidence; uv, Poetry, PDM, Pipenv, Hatch and requirements files."""

import re
import shlex
from collections.abc import Iterator

from fleet.features.recipes.recipe import Reasoned, Recipe, install_tool, joined
from fleet.features.recipes.tree import Tree, strings, table

VENVS = (".venv", "venv", "env")
REQUIREMENTS = re.compile(
    r"(?:requirements(?:[-_./](?:dev|test|tests|testing|ci|all|local))?|(?:dev|test)[-_]requirements)\.(?:txt|pip)"
)
CONFIGURED = ("pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini", ".pytest.ini", "noxfile.py")
TESTERS = re.compile(r"^(?:tests?|testing|dev|develop|development|ci|all)$")
MOST_TESTS_READ = 40
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

OWN_IGNORE = "echo '*' > .venv/.gitignore"
TOOLS = {
    "uv.lock": ("uv", "UV_CACHE_DIR=/tmp/uv-cache UV_LINK_MODE=copy {uv} sync --frozen{extras}"),
    "poetry.lock": (
        "poetry",
        "POETRY_VIRTUALENVS_IN_PROJECT=1 POETRY_CACHE_DIR=/tmp/poetry-cache {poetry} install --no-interaction{extras}",
    ),
    "pdm.lock": ("pdm", "{pdm} install --frozen-lockfile{extras}"),
    "Pipfile.lock": (
        "pipenv",
        "PIPENV_VENV_IN_PROJECT=1 PIPENV_CACHE_DIR=/tmp/pipenv-cache {pipenv} sync --dev{extras}",
    ),
}
"""Tools and commands by lock file. Their caches are in /tmp, which is larger than the home."""


def detect(tree: Tree) -> Iterator[Recipe]:
    if not _is_python(tree):
        return
    runner = _runner(tree)
    if runner is None:
        return
    kind, command, why = runner
    environment = _environment(tree)
    needs = _requirements(tree)
    listed = any(map(REQUIREMENTS.fullmatch, tree.names)) or tree.has(*TOOLS)
    is_bare = not needs and not listed and not _is_installable(tree)
    bare = Recipe(kind=kind, gate=f"python3 {command}", why=why, environment=environment)
    if is_bare and "pytest" not in command:
        yield bare
    venv = next((name for name in VENVS if tree.ignores(name)), None)
    if venv is not None:
        shown = f"{{repo}}/{tree.folder}/{venv}".replace("//", "/")
        yield Recipe(
            kind=kind,
            gate=f"python3 {command}",
            why=why,
            environment=environment,
            read_only=(Reasoned(shown, "your virtual environment, which git ignores"),),
            path=(Reasoned(f"{shown}/bin", "its python3 takes precedence"),),
        )
    if is_bare:
        yield bare
    for setup, setup_why in _setups(tree, needs, wants_pytest="pytest" in command):
        yield Recipe(
            kind=kind,
            gate=f".venv/bin/python {command}",
            why=why,
            setup=joined(setup, OWN_IGNORE),
            setup_why=setup_why,
            needs_network=True,
            environment=environment,
            provides=(".venv/bin",),
        )
    if not is_bare:
        yield bare


# ---- tests ----------------------------------------------------------------------------------------------------------


def _is_python(tree: Tree) -> bool:
    names = (
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "tox.ini",
        "noxfile.py",
        "pytest.ini",
        "manage.py",
        "Pipfile",
        "conftest.py",
    )
    return tree.has(*names) or any(map(REQUIREMENTS.fullmatch, tree.names)) or bool(_tests(tree))


def _tests(tree: Tree) -> tuple[str, ...]:
    """Return the test files in common places: next to the sources, in `tests`, in packages."""
    if tree.has("pyproject.toml", "setup.py", "setup.cfg", "manage.py"):
        return tree.matching("test_*.py", "*/test_*.py", "*_test.py", "tests.py", "*/tests.py")
    places = ("test_", "tests/", "test/")
    found = tree.matching("test_*.py", "tests/test_*.py", "tests/*/test_*.py", "test/test_*.py", "tests/*_test.py")
    return tuple(name for name in found if name.startswith(places))


def _runner(tree: Tree) -> tuple[str, str, str] | None:
    """Return the kind of the project, the Python arguments that run its tests, and the reason."""
    tests = _tests(tree)
    named = next((name for name in CONFIGURED if "pytest" in tree.text(name)), "")
    texts = "".join(map(tree.text, tests[:MOST_TESTS_READ]))
    has_django = tree.has("manage.py") and "DJANGO_SETTINGS_MODULE" in tree.text("manage.py")
    if has_django and "DJANGO_SETTINGS_MODULE" not in "".join(map(tree.text, CONFIGURED)):
        return ("Python with Django", "manage.py test", "found manage.py of Django")
    if named:
        return ("Python with pytest", "-m pytest -q", f"{named} mentions pytest")
    required = next((name for name in tree.names if REQUIREMENTS.fullmatch(name) and "pytest" in tree.text(name)), "")
    if required:
        return ("Python with pytest", "-m pytest -q", f"{required} lists pytest")
    if tree.matching("conftest.py", "tests/conftest.py", "test/conftest.py"):
        return ("Python with pytest", "-m pytest -q", "found a conftest.py")
    if re.search(r"^\s*(?:import|from) pytest\b", texts, re.MULTILINE):
        return ("Python with pytest", "-m pytest -q", "the tests import pytest")
    if re.search(r"^(?:async )?def test_", texts, re.MULTILINE) and "unittest" not in texts:
        return ("Python with pytest", "-m pytest -q", "the tests are plain functions, which pytest collects")
    if not tests:
        return None
    return ("Python with unittest", _unittest(tree, tests), f"{tests[0]} uses unittest")


def _unittest(tree: Tree, tests: tuple[str, ...]) -> str:
    """Return the arguments for unittest. Discovery only finds modules that can be imported from its start folder."""
    folder = next((name for name in ("tests", "test") if any(test.startswith(f"{name}/") for test in tests)), "")
    pattern = "" if any(test.rpartition("/")[2].startswith("test") for test in tests) else " -p '*_test.py'"
    if not folder or any("/" not in test for test in tests):
        return f"-m unittest discover{pattern}" if pattern else "-m unittest"
    top = " -t ." if tree.has(f"{folder}/__init__.py") else ""  # without it, relative imports fail
    return f"-m unittest discover -s {folder}{top}{pattern}"


def _environment(tree: Tree) -> dict[str, Reasoned]:
    """Put `src` on the path if it contains the package, so that no installation of another tree is imported."""
    if any(name.startswith("src/") and name.endswith("/__init__.py") and name.count("/") == 2 for name in tree.names):  # noqa: PLR2004
        return {"PYTHONPATH": Reasoned("src", "the package is in src, and must be imported from the worktree")}
    return {}


# ---- dependencies ---------------------------------------------------------------------------------------------------


def _setups(tree: Tree, needs: tuple[str, ...], *, wants_pytest: bool) -> Iterator[tuple[str, str]]:
    """Yield commands that create `.venv` in the worktree with the dependencies of the tests, the best first."""
    for lock, (tool, command) in TOOLS.items():
        if tree.has(lock):
            install, place = ("", tool) if tree.has_program(tool) else install_tool(tool, tool)
            call = command.format(**{tool: place, "extras": _extras(tree, tool)})
            yield joined(install, call, _with_pytest(tree, wants=wants_pytest)), f"installs the dependencies in {lock}"
    files = tuple(name for name in tree.names if REQUIREMENTS.fullmatch(name))
    more = ("pytest",) if wants_pytest and not _names_pytest(tree, needs, files) else ()
    venv = "python3 -m venv .venv && .venv/bin/pip install -q --no-cache-dir"
    listed = " ".join(f"-r {shlex.quote(name)}" for name in files)
    extras = " ".join(map(shlex.quote, (*needs, *more)))
    if _is_installable(tree):
        options = " ".join(filter(None, (listed, "-e .", extras)))
        yield f"{venv} {options}", "installs the project with its dependencies and those of its tests"
    if listed or extras:
        yield (
            f"{venv} {' '.join(filter(None, (listed, extras)))}",
            "installs the dependencies of the project and its tests",
        )


def _is_installable(tree: Tree) -> bool:
    return tree.has("setup.py") or "project" in (data := tree.toml("pyproject.toml")) or "build-system" in data


def _requirements(tree: Tree) -> tuple[str, ...]:
    """Return the dependencies of the project, its tests and its development, other than requirements files."""
    data = tree.toml("pyproject.toml")
    project, groups = table(data, "project"), table(data, "dependency-groups")
    found = list(strings(project.get("dependencies")))
    for name, listed in table(project, "optional-dependencies").items():
        if TESTERS.match(str(name)) or "pytest" in " ".join(strings(listed)):
            found += strings(listed)
    for name, listed in groups.items():
        if TESTERS.match(str(name)) or "pytest" in " ".join(strings(listed)):
            found += strings(listed)
    for environment in table(data, "tool", "hatch", "envs").values():
        found += (
            *strings(table(environment).get("dependencies")),
            *strings(table(environment).get("extra-dependencies")),
        )
    found += (
        _of_poetry(table(data, "tool", "poetry")) + _of_tox(tree.text("tox.ini")) + _of_nox(tree.text("noxfile.py"))
    )
    found += strings(table(data, "tool", "uv").get("dev-dependencies"))
    found += [text for listed in table(data, "tool", "pdm", "dev-dependencies").values() for text in strings(listed)]
    if tree.has("Pipfile"):
        pipfile = tree.toml("Pipfile")
        found += [str(name) for part in ("packages", "dev-packages") for name in table(pipfile, part)]
    own = str(project.get("name", "")).lower()
    usable = (text for text in found if NAME.match(text) and "{" not in text and _name(text) != own)
    return tuple(dict.fromkeys(usable))


def _of_poetry(poetry: dict[str, object]) -> list[str]:
    """Return the names of Poetry's dependencies, without versions, because other tools don't support its ranges."""
    tables = [table(poetry, "dependencies"), table(poetry, "dev-dependencies")]
    tables += [table(group, "dependencies") for group in table(poetry, "group").values()]
    return [str(name) for each in tables for name in each if name != "python"]


def _of_tox(text: str) -> list[str]:
    """Return the requirements in `deps =` of a tox.ini, without files, options and conditional requirements."""
    found = list[str]()
    for block in re.findall(r"^deps\s*=((?:.*\n?)(?:[ \t]+.*\n?)*)", text, re.MULTILINE):
        found += [
            line.strip() for line in block.splitlines() if line.strip() and not line.strip().startswith(("-", "#"))
        ]
    return [line for line in found if NAME.match(line) and ": " not in line]


def _of_nox(text: str) -> list[str]:
    calls = re.findall(r"session\.install\(([^()]{1,500})\)", text)
    return [name for call in calls for name in re.findall(r"""["']([A-Za-z0-9][^"']*)["']""", call)]


def _names_pytest(tree: Tree, needs: tuple[str, ...], files: tuple[str, ...]) -> bool:
    return any(_name(text) == "pytest" for text in needs) or any(
        re.search(r"^pytest\b(?!-)", tree.text(name), re.MULTILINE) for name in files
    )


def _with_pytest(tree: Tree, *, wants: bool) -> str:
    """Return a command that adds pytest to an environment whose lock file lacks it."""
    locks = "".join(tree.text(name) for name in TOOLS)
    if not wants or "pytest" in locks:
        return ""
    python = ".venv/bin/python -m"
    return f"{{ {python} pip --version || {python} ensurepip; }} >/dev/null && {python} pip install -q pytest"


def _extras(tree: Tree, tool: str) -> str:
    """Return the options that install the extras and groups for tests."""
    data = tree.toml("pyproject.toml")
    project = table(data, "project", "optional-dependencies")
    extras = [
        name for name, listed in project.items() if "pytest" in " ".join(strings(listed)) or TESTERS.match(str(name))
    ]
    groups = [
        name for name, listed in table(data, "dependency-groups").items() if "pytest" in " ".join(strings(listed))
    ]
    groups += [name for name in table(data, "tool", "poetry", "group") if TESTERS.match(str(name))]
    option = {"uv": "--group", "poetry": "--with", "pdm": "-G"}.get(tool)
    if option is None:
        return ""
    extra = {"uv": "--extra", "poetry": "--extras", "pdm": "-G"}[tool]
    parts = [f" {extra} {shlex.quote(str(name))}" for name in extras]
    parts += [f" {option} {shlex.quote(str(name))}" for name in dict.fromkeys(groups)]
    return "".join(parts)


def _name(requirement: str) -> str:
    match = NAME.match(requirement)
    return match[0].lower().rstrip(".-_") if match else ""
