"""Generated trees, one for each kind of project, with the recipe that comes first for it."""

import json
from collections.abc import Mapping
from typing import NamedTuple

Files = Mapping[str, str]


class Case(NamedTuple):
    """A repository, and the first recipe for it."""

    files: Files
    gate: str
    setup: str = ""
    """A part of it; empty: there is none."""
    environment: Mapping[str, str] = {}
    programs: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def package(**keys: object) -> str:
    return json.dumps(keys)


PYTEST = "def test_a():\n    assert True\n"
UNITTEST = "import unittest\n"
PROJECT = '[project]\nname = "calc"\nversion = "1"\n'
NODE_TEST = "import test from 'node:test'\n"
CI = {"CI": "true"}
PACKAGES = ".fleet-tools/node_modules/.bin"
TREE = "/repo/.fleet-tools"
TMP = "/tmp"  # noqa: S108 - the box's own
GOCACHE = {"GOCACHE": f"{TMP}/go-build"}

CASES = {
    # Python
    "pytest, configured, with dependencies": Case(
        {"pyproject.toml": f"{PROJECT}dependencies = ['idna']\n[tool.pytest.ini_options]\n", "tests/test_a.py": PYTEST},
        ".venv/bin/python -m pytest -q",
        "pip install -q --no-cache-dir -e . idna pytest",
    ),
    "pytest without any configuration": Case({"test_a.py": PYTEST}, "python3 -m pytest -q"),
    "unittest in a package": Case(
        {"tests/__init__.py": "", "tests/test_a.py": UNITTEST}, "python3 -m unittest discover -s tests -t ."
    ),
    "unittest in a folder": Case({"tests/test_a.py": UNITTEST}, "python3 -m unittest discover -s tests"),
    "unittest beside the sources": Case({"test_a.py": UNITTEST, "a.py": ""}, "python3 -m unittest"),
    "a src layout": Case(
        {"src/calc/__init__.py": "", "tests/test_a.py": f"from calc import a\n{PYTEST}"},
        "python3 -m pytest -q",
        environment={"PYTHONPATH": "src"},
    ),
    "a virtual environment in the checkout": Case(
        {"pyproject.toml": PROJECT, "tests/test_a.py": PYTEST}, "python3 -m pytest -q", ignored=(".venv/",)
    ),
    "requirements files": Case(
        {"requirements.txt": "idna\n", "requirements-dev.txt": "pytest\n", "tests/test_a.py": PYTEST},
        ".venv/bin/python -m pytest -q",
        "-r requirements-dev.txt -r requirements.txt",
    ),
    "uv, which this machine lacks": Case(
        {
            "pyproject.toml": f"{PROJECT}[dependency-groups]\ndev = ['pytest']\n",
            "uv.lock": "pytest",
            "tests/test_a.py": PYTEST,
        },
        ".venv/bin/python -m pytest -q",
        f"{TMP}/uv/bin/pip install -q --no-cache-dir uv",
    ),
    "uv, which this machine has": Case(
        {"pyproject.toml": PROJECT, "uv.lock": "pytest", "tests/test_a.py": PYTEST},
        ".venv/bin/python -m pytest -q",
        "UV_CACHE_DIR=/tmp/uv-cache UV_LINK_MODE=copy uv sync --frozen",
        programs=("uv",),
    ),
    "poetry": Case(
        {"pyproject.toml": "[tool.poetry]\nname = 'a'\n", "poetry.lock": "pytest", "tests/test_a.py": PYTEST},
        ".venv/bin/python -m pytest -q",
        "poetry install --no-interaction",
    ),
    "pdm": Case(
        {"pyproject.toml": PROJECT, "pdm.lock": "pytest", "tests/test_a.py": PYTEST},
        ".venv/bin/python -m pytest -q",
        "pdm install --frozen-lockfile",
    ),
    "pipenv": Case(
        {"Pipfile": "[packages]\n", "Pipfile.lock": "pytest", "tests/test_a.py": PYTEST},
        ".venv/bin/python -m pytest -q",
        "pipenv sync --dev",
    ),
    "hatch": Case(
        {
            "pyproject.toml": f"{PROJECT}[tool.hatch.envs.test]\ndependencies = ['pytest', 'idna']\n",
            "tests/test_a.py": PYTEST,
        },
        ".venv/bin/python -m pytest -q",
        "-e . pytest idna",
    ),
    "tox": Case(
        {
            "tox.ini": "[testenv]\ndeps =\n    pytest\n    idna\n    -rother.txt\ncommands = pytest\n",
            "test_a.py": PYTEST,
        },
        ".venv/bin/python -m pytest -q",
        "pip install -q --no-cache-dir pytest idna",
    ),
    "nox": Case(
        {"noxfile.py": "def tests(session):\n    session.install('pytest', 'idna')\n", "test_a.py": PYTEST},
        ".venv/bin/python -m pytest -q",
        "pip install -q --no-cache-dir pytest idna",
    ),
    "Django": Case(
        {"manage.py": "DJANGO_SETTINGS_MODULE", "requirements.txt": "Django\n", "app/tests.py": UNITTEST},
        ".venv/bin/python manage.py test",
        "-r requirements.txt",
    ),
    # JavaScript and TypeScript
    "npm with a lock file": Case(
        {"package.json": package(scripts={"test": "jest"}, devDependencies={"jest": "1"}), "package-lock.json": "{}"},
        "npm test",
        "npm ci",
        CI,
    ),
    "npm without a lock file": Case(
        {"package.json": package(scripts={"test": "mocha"}, devDependencies={"mocha": "1"})},
        "npm test",
        "npm install --no-audit --no-fund --no-package-lock",
        CI,
    ),
    "npm's own test script, and vitest": Case(
        {
            "package.json": package(
                scripts={"test": 'echo "Error: no test specified" && exit 1'}, devDependencies={"vitest": "1"}
            )
        },
        "npx --no vitest run",
        "npm install",
        CI,
    ),
    "node --test": Case({"package.json": package(name="a"), "a.test.mjs": NODE_TEST}, "node --test", environment=CI),
    "node --test without package.json": Case({"test/a.js": NODE_TEST}, "node --test", environment=CI),
    "installed packages in the checkout": Case(
        {"package.json": package(scripts={"test": "jest"}, devDependencies={"jest": "1"})},
        "npm test",
        environment=CI,
        ignored=("node_modules/",),
    ),
    "a unit test beside browsers": Case(
        {"package.json": package(scripts={"test": "cypress run", "test:unit": "node --test"})},
        "npm run test:unit",
        environment=CI,
    ),
    "pnpm": Case(
        {"package.json": package(scripts={"test": "vitest"}, devDependencies={"vitest": "1"}), "pnpm-lock.yaml": ""},
        "npm test",
        f'--cache /tmp/npm pnpm) && export PATH="$PWD/{PACKAGES}:$PATH" && pnpm install --frozen-lockfile',
        CI,
    ),
    "pnpm, with a workspace": Case(
        {"package.json": package(packageManager="pnpm@9.1.0"), "pnpm-workspace.yaml": "", "pnpm-lock.yaml": ""},
        f'PATH="$PWD/{PACKAGES}:$PATH" pnpm -r --if-present test',
        "--cache /tmp/npm pnpm@9.1.0)",
        CI,
    ),
    "yarn 1, on this machine": Case(
        {"package.json": package(scripts={"test": "jest"}, devDependencies={"jest": "1"}), "yarn.lock": "# v1"},
        "npm test",
        "yarn install --frozen-lockfile",
        CI,
        programs=("yarn",),
    ),
    "yarn berry": Case(
        {
            "package.json": package(scripts={"test": "jest"}, devDependencies={"jest": "1"}),
            "yarn.lock": "__metadata:\n",
        },
        "npm test",
        "@yarnpkg/cli-dist",
        CI,
    ),
    "bun": Case(
        {"package.json": package(devDependencies={"typescript": "5"}), "bun.lock": "", "a.test.ts": ""},
        f'PATH="$PWD/{PACKAGES}:$PATH" bun test',
        "bun install --frozen-lockfile",
        CI,
    ),
    "npm workspaces": Case(
        {"package.json": package(workspaces=["packages/*"]), "packages/a/package.json": "{}", "package-lock.json": ""},
        "npm test --workspaces --if-present",
        "npm ci",
        CI,
    ),
    "Deno": Case(
        {"deno.json": "{}"}, "deno test --allow-all", environment={"DENO_DIR": f"{TMP}/deno"}, programs=("deno",)
    ),
    # other languages
    "Rust without crates of others": Case({"Cargo.toml": "[package]\nname = 'a'\n"}, "cargo test"),
    "a Rust workspace": Case(
        {
            "Cargo.toml": "[workspace]\nmembers = ['a', 'b']\n",
            "a/Cargo.toml": "[dependencies]\nb = { path = '../b' }\n",
            "b/Cargo.toml": "",
        },
        "cargo test --workspace",
    ),
    "Rust with crates": Case(
        {"Cargo.toml": "[dependencies]\nserde = '1'\n", "Cargo.lock": 'source = "registry"'},
        "cargo test --offline",
        "cargo fetch --locked",
        {"CARGO_HOME": f"{TREE}/cargo"},
    ),
    "Go": Case({"go.mod": "module a\n"}, "go test ./...", environment=GOCACHE),
    "Go with modules of others": Case(
        {"go.mod": "module a\nrequire (\n\tgithub.com/x/y v1.2.3\n)\n"},
        "go test ./...",
        "go mod download",
        {**GOCACHE, "GOMODCACHE": f"{TREE}/go"},
    ),
    "a Go workspace": Case(
        {"go.work": "go 1.19\n\nuse (\n\t./a\n\t./b/c\n)\n", "a/go.mod": "", "b/c/go.mod": ""},
        "go test ./a/... ./b/c/...",
        environment=GOCACHE,
    ),
    "Maven": Case(
        {"pom.xml": ""},
        f"mvn -B -q -Dmaven.repo.local={TREE}/m2 -o test",
        "mvn",
        {"MAVEN_USER_HOME": f"{TREE}/maven"},
    ),
    "Gradle's wrapper, Kotlin": Case(
        {"gradlew": "", "build.gradle.kts": "mavenCentral()", "src/a.kt": ""},
        "sh ./gradlew --no-daemon --offline test",
        "sh ./gradlew --no-daemon test || true",
        {"GRADLE_USER_HOME": f"{TREE}/gradle"},
    ),
    "CMake": Case(
        {"CMakeLists.txt": "enable_testing()\n", ".gitignore": "/build/\n"},
        "cmake -S . -B build && cmake --build build -j 2 && ctest --test-dir build --output-on-failure",
    ),
    "CMake without a folder for what it builds": Case(
        {"CMakeLists.txt": "include(CTest)\n"},
        "cmake -S . -B /tmp/build && cmake --build /tmp/build -j 2 && ctest --test-dir /tmp/build --output-on-failure",
    ),
    "Meson": Case(
        {"meson.build": ""},
        "meson setup /tmp/build && meson test -C /tmp/build --print-errorlogs",
        programs=("meson",),
    ),
    "autotools, generated": Case({"configure": "", "configure.ac": ""}, "sh ./configure && make -j 2 check"),
    "autotools": Case({"configure.ac": ""}, "autoreconf -fi && ./configure && make -j 2 check"),
    "make": Case({"Makefile": "CC = gcc\nall: a\n\ntest: all\n\t./a\n"}, "make test"),
    "make check": Case({"GNUmakefile": ".PHONY: check\ncheck:\n\ttrue\n"}, "make check"),
    "just, which this machine lacks": Case(
        {"justfile": "test:\n    python3 a.py\n    @echo ok\n"}, "python3 a.py && echo ok"
    ),
    "just": Case({"justfile": "test: build\n    x\n"}, "just test", programs=("just",)),
    "Task": Case({"Taskfile.yml": "version: '3'\ntasks:\n  test:\n    cmds: [x]\n"}, "task test"),
    "mise": Case({"mise.toml": "[tasks.test]\nrun = 'x'\n"}, "mise run test"),
    "a script": Case({"run_tests.sh": "#!/usr/bin/env bash\n"}, "bash run_tests.sh"),
    "RSpec with Bundler": Case(
        {"Gemfile": "gem 'rspec'\n", "spec/a_spec.rb": ""},
        "bundle exec rspec",
        "bundle install",
        {"BUNDLE_PATH": f"{TREE}/gems"},
    ),
    "Rake": Case({"Rakefile": "Rake::TestTask.new\n", "test/a_test.rb": ""}, "rake test"),
    "PHPUnit with Composer": Case(
        {"composer.json": json.dumps({"require-dev": {"phpunit/phpunit": "^10"}})},
        "php vendor/bin/phpunit",
        "composer install",
    ),
    "PHPUnit": Case({"phpunit.xml": ""}, "phpunit"),
    "Elixir": Case(
        {"mix.exs": "", "mix.lock": ""},
        "mix test",
        "mix deps.get",
        {"MIX_HOME": f"{TREE}/mix", "HEX_HOME": f"{TREE}/hex"},
    ),
    ".NET": Case(
        {"a.sln": "", "a/a.csproj": ""},
        "dotnet test",
        "dotnet restore",
        {"DOTNET_CLI_HOME": f"{TMP}/dotnet", "NUGET_PACKAGES": f"{TREE}/nuget", "DOTNET_NOLOGO": "1"},
    ),
    "Perl": Case({"t/a.t": "", "lib/A.pm": ""}, "prove -lr t"),
    "Tcl": Case({"tests/all.tcl": ""}, "tclsh tests/all.tcl"),
    "Zig": Case({"build.zig": ""}, "zig build test"),
    "Swift": Case({"Package.swift": ""}, "swift test"),
    # where the command stands
    "only CI says how": Case(
        {".github/workflows/ci.yml": "steps:\n  - run: pip install x\n  - run: ./ci/test.py --all\n", "ci/test.py": ""},
        "./ci/test.py --all",
    ),
    "CI chooses between two": Case(
        {".gitlab-ci.yml": "test:\n  script:\n    - make test\n", "Makefile": "test:\n\tx\n", "test_a.py": UNITTEST},
        "make test",
    ),
    "without CI, the kind's own command comes first": Case(
        {"Makefile": "test:\n\tx\n", "test_a.py": UNITTEST}, "python3 -m unittest"
    ),
    "a project in a folder": Case({"svc/api/go.mod": "module a\n"}, "(cd svc/api && go test ./...)", "", GOCACHE),
    "a project in a folder with an odd name": Case({"a b;c/go.mod": ""}, "(cd 'a b;c' && go test ./...)", "", GOCACHE),
}
