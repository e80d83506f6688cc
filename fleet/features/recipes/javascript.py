"""JavaScript and TypeScript: npm, pnpm, Yarn, Bun and Deno, scripts, jest, vitest, mocha, ava and `node --test`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fleet.features.recipes.recipe import MAKE_TOOLS, TOOLS, Reasoned, Recipe, joined
from fleet.features.recipes.tree import Tree, strings, table

SCRIPTS = ("test", "test:unit", "test:ci", "unit", "tests", "spec", "check")
NO_TEST = "no test specified"
BROWSERS = re.compile(r"\b(?:cypress|playwright|karma|puppeteer|webdriver|e2e)\b")
RUNNERS = {
    "vitest": "npx --no vitest run",
    "jest": "npx --no jest",
    "mocha": "npx --no mocha",
    "ava": "npx --no ava",
    "tap": "npx --no tap",
    "jasmine": "npx --no jasmine",
}
LOCKS = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
    "package-lock.json": "npm",
    "npm-shrinkwrap.json": "npm",
}
INSTALL = {
    "pnpm": "pnpm install --frozen-lockfile --store-dir /tmp/pnpm",
    "yarn": "yarn install --frozen-lockfile --cache-folder /tmp/yarn",
    "berry": "YARN_NODE_LINKER=node-modules YARN_GLOBAL_FOLDER=/tmp/yarn yarn install --immutable",
    "bun": "BUN_INSTALL_CACHE_DIR=/tmp/bun bun install --frozen-lockfile",
    "npm": "npm ci --no-audit --no-fund --cache /tmp/npm",
}
WITHOUT_LOCK = {
    "npm": "npm install --no-audit --no-fund --no-package-lock --cache /tmp/npm",
    "pnpm": "pnpm install --no-lockfile --store-dir /tmp/pnpm",
    "yarn": "yarn install --no-lockfile --cache-folder /tmp/yarn",
    "bun": "BUN_INSTALL_CACHE_DIR=/tmp/bun bun install --no-save",
}
PACKAGES = {"berry": "@yarnpkg/cli-dist"}
OWN_IGNORE = "mkdir -p node_modules && echo '*' > node_modules/.gitignore"
CI = {"CI": Reasoned("true", "disables watch mode and prompts of test runners")}
PROGRAMS = f"{TOOLS}/node_modules/.bin"


@dataclass(frozen=True, slots=True)
class PackageManager:
    """The package manager of a project."""

    name: str
    program: str
    package: str
    lock: str
    is_here: bool

    @property
    def install(self) -> str:
        command = INSTALL[self.name] if self.lock else WITHOUT_LOCK.get(self.name, INSTALL[self.name])
        if self.is_here:
            return command
        return f'{install_from_npm(self.package)} && export PATH="$PWD/{PROGRAMS}:$PATH" && {command}'

    @property
    def bin(self) -> tuple[str, ...]:
        return () if self.is_here else (PROGRAMS,)


def install_from_npm(package: str) -> str:
    """Return a command that installs a tool in the worktree, separate from the project's own packages."""
    npm = "npm install -q --no-audit --no-fund --cache /tmp/npm"  # --prefix would ignore the npm configuration
    return f"{MAKE_TOOLS} && (cd {TOOLS} && echo '{{}}' > package.json && {npm} {package})"


def detect(tree: Tree) -> Iterator[Recipe]:
    if tree.has("deno.json", "deno.jsonc"):
        yield _deno(tree)
    if not tree.has("package.json"):
        if tests := [
            name for name in _node_tests(tree) if name.count("/") == 0 or name.startswith(("test/", "tests/"))
        ]:
            why = f"{tests[0]} uses the test runner of Node.js"
            yield Recipe("JavaScript with node --test", "node --test", why, environment=CI)
        return
    package, manager = tree.json("package.json"), _manager(tree)
    for kind, gate, why, needs_manager in _gates(tree, package, manager):
        bare = Recipe(kind, gate, why, environment=CI, bin=manager.bin if needs_manager else ())
        yield from _with_dependencies(tree, package, manager, bare)


def _with_dependencies(tree: Tree, package: dict[str, Any], manager: PackageManager, bare: Recipe) -> Iterator[Recipe]:
    has_packages = any(table(package, key) for key in ("dependencies", "devDependencies"))
    is_workspace = bool(_workspaces(tree, package))
    if not has_packages and not is_workspace and not bare.bin:
        yield bare
        return
    if tree.ignores("node_modules") and not bare.bin:
        copied = Reasoned("node_modules/", "your installed packages, which git ignores")
        yield replace(bare, include=(copied,))
    why = f"installs the packages in {manager.lock}" if manager.lock else "installs the packages in package.json"
    setup = joined(manager.install, OWN_IGNORE)
    yield replace(bare, setup=setup, setup_why=why, needs_network=True)
    if not has_packages:
        yield replace(bare, bin=())


# ---- test commands --------------------------------------------------------------------------------------------------


def _gates(tree: Tree, package: dict[str, Any], manager: PackageManager) -> Iterator[tuple[str, str, str, bool]]:
    """Yield kind, command and reason of each way to run the tests, and whether it needs the package manager."""
    scripts = {name: text for name, text in table(package, "scripts").items() if isinstance(text, str)}
    usable = [name for name in SCRIPTS if name in scripts and NO_TEST not in scripts[name]]
    usable.sort(key=lambda name: BROWSERS.search(scripts[name]) is not None)
    for name in usable:
        calls = (
            manager.name != "npm" and re.search(rf"\b(?:{manager.program})\b", " ".join(scripts.values())) is not None
        )
        tool = manager.program if calls else "npm"
        command = f"{tool} test" if name == "test" and tool != "bun" else f"{tool} run {name}"
        yield f"{_language(tree)} with {manager.program}", command, f"package.json has a script {name!r}", calls
    if not usable and _workspaces(tree, package):
        yield _workspace_gate(tree, manager)
    if "test" not in usable:
        yield from _runner_gates(tree, package, manager)


def _workspace_gate(tree: Tree, manager: PackageManager) -> tuple[str, str, str, bool]:
    commands = {
        "pnpm": "pnpm -r --if-present test",
        "yarn": "yarn workspaces run test",
        "berry": "yarn workspaces foreach --all run test",
        "bun": "bun run --filter '*' test",
        "npm": "npm test --workspaces --if-present",
    }
    source = "pnpm-workspace.yaml" if tree.has("pnpm-workspace.yaml") else "package.json"
    kind = f"{_language(tree)} workspaces with {manager.program}"
    return kind, commands[manager.name], f"{source} lists workspaces", manager.name != "npm"


def _runner_gates(tree: Tree, package: dict[str, Any], manager: PackageManager) -> Iterator[tuple[str, str, str, bool]]:
    named = {**table(package, "dependencies"), **table(package, "devDependencies")}
    for name, command in RUNNERS.items():
        if name in named:
            yield f"{_language(tree)} with {name}", command, f"package.json requires {name}", False
    if manager.name == "bun" and tree.matching("*.test.ts", "*.test.js", "*.test.tsx", "*.spec.ts"):
        yield f"{_language(tree)} with bun", "bun test", "found test files and a Bun lock file", True
    elif tests := _node_tests(tree):
        yield "JavaScript with node --test", "node --test", f"{tests[0]} uses the test runner of Node.js", False


def _node_tests(tree: Tree) -> tuple[str, ...]:
    patterns = (
        "*.test.js",
        "*.test.mjs",
        "*.test.cjs",
        "test/*.js",
        "test/*.mjs",
        "test.js",
        "test.mjs",
        "*/test-*.js",
    )
    return tuple(name for name in tree.matching(*patterns)[:40] if "node:test" in tree.text(name))


def _deno(tree: Tree) -> Recipe:
    name = tree.first("deno.json", "deno.jsonc")
    has_task = "test" in table(tree.json(name), "tasks")
    gate = "deno task test" if has_task else "deno test --allow-all"
    here = tree.has_program("deno")
    return Recipe(
        "JavaScript with Deno",
        gate,
        f"found {name}",
        setup="" if here else install_from_npm("deno"),
        setup_why="" if here else "installs Deno, which this machine lacks",
        needs_network=not here,
        bin=() if here else (PROGRAMS,),
        environment={"DENO_DIR": Reasoned("/tmp/deno", "the cache of Deno, in a writable folder")},  # noqa: S108 - in the box
    )


# ---- the package manager --------------------------------------------------------------------------------------------


def _manager(tree: Tree) -> PackageManager:
    declared = str(tree.json("package.json").get("packageManager", ""))
    named = re.fullmatch(r"(npm|pnpm|yarn|bun)@(\d{1,4}(?:\.\d{1,6}){0,2})(?:\+.*)?", declared)
    lock = next((name for name in LOCKS if tree.has(name)), "")
    program = named[1] if named else LOCKS.get(lock, "pnpm" if tree.has("pnpm-workspace.yaml") else "npm")
    major = int(named[2].partition(".")[0]) if named else 0
    is_berry = program == "yarn" and (major > 1 or tree.has(".yarnrc.yml") or "__metadata:" in tree.text("yarn.lock"))
    name = "berry" if is_berry else program
    package = PACKAGES.get(name, program) + (f"@{named[2]}" if named else "@1" if name == "yarn" else "")
    lock = lock if LOCKS.get(lock) == program else ""
    return PackageManager(
        name, program, package, lock, is_here=program == "npm" or (not is_berry and tree.has_program(program))
    )


def _workspaces(tree: Tree, package: dict[str, Any]) -> tuple[str, ...]:
    listed = package.get("workspaces")
    named = strings(listed if isinstance(listed, list) else table(package, "workspaces").get("packages"))
    return named or (("*",) if tree.has("pnpm-workspace.yaml") else ())


def _language(tree: Tree) -> str:
    return "TypeScript" if tree.has("tsconfig.json") or tree.matching("src/*.ts", "packages/*.ts") else "JavaScript"
