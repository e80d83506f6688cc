"""Other kinds of projects. Most need one table row: a marker file and its commands."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from fleet.features.recipes.recipe import MAKE_TOOLS, ROOT, TOOLS, Reasoned, Recipe, install_tool, joined
from fleet.features.recipes.tree import Tree, table


class RunnerRow(NamedTuple):
    """A kind of project: its marker files and commands."""

    kind: str
    markers: tuple[str, ...]
    gate: str
    setup: str = ""
    """The command that fetches dependencies, used if one of the files in `needs` exists."""
    needs: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    """Variables with folders that its tools write to."""


PLACE = f"{ROOT}/{TOOLS}"
MIX = (("MIX_HOME", f"{PLACE}/mix"), ("HEX_HOME", f"{PLACE}/hex"))
DOTNET = (("DOTNET_CLI_HOME", "/tmp/dotnet"), ("NUGET_PACKAGES", f"{PLACE}/nuget"), ("DOTNET_NOLOGO", "1"))  # noqa: S108
ROWS = (
    RunnerRow(
        "Elixir",
        ("mix.exs",),
        "mix test",
        "mix local.hex --force && mix local.rebar --force && mix deps.get",
        ("mix.lock",),
        MIX,
    ),
    RunnerRow("Erlang", ("rebar.config",), "rebar3 eunit", "rebar3 get-deps", ("rebar.lock",)),
    RunnerRow(".NET", ("*.sln", "*.slnx"), "dotnet test", "dotnet restore", ("*.sln", "*.slnx"), DOTNET),
    RunnerRow(".NET", ("*.csproj", "*.fsproj", "*/*.csproj"), "dotnet test", "dotnet restore", ("*proj",), DOTNET),
    RunnerRow("Swift", ("Package.swift",), "swift test", "swift package resolve", ("Package.resolved",)),
    RunnerRow(
        "Dart", ("pubspec.yaml",), "dart test", "dart pub get", ("pubspec.yaml",), (("PUB_CACHE", f"{PLACE}/pub"),)
    ),
    RunnerRow("Zig", ("build.zig",), "zig build test"),
    RunnerRow("Haskell with Stack", ("stack.yaml",), "stack test"),
    RunnerRow("Haskell with Cabal", ("*.cabal", "cabal.project"), "cabal test all"),
    RunnerRow("OCaml with dune", ("dune-project",), "dune test"),
    RunnerRow("Clojure", ("project.clj",), "lein test"),
    RunnerRow("Clojure", ("deps.edn",), "clojure -M:test"),
    RunnerRow("Julia", ("Project.toml",), "julia --project=. -e 'using Pkg; Pkg.test()'"),
    RunnerRow("R", ("DESCRIPTION",), "Rscript -e 'testthat::test_local()'"),
    RunnerRow("Nim", ("*.nimble",), "nimble test"),
    RunnerRow("Crystal", ("shard.yml",), "crystal spec", "shards install", ("shard.lock",)),
    RunnerRow("Lua with busted", (".busted", "spec/*_spec.lua"), "busted"),
    RunnerRow("Perl", ("t/*.t",), "prove -lr t"),
    RunnerRow("Tcl", ("tests/all.tcl",), "tclsh tests/all.tcl"),
    RunnerRow("Tcl", ("all.tcl",), "tclsh all.tcl"),
    RunnerRow("Bazel", ("MODULE.bazel", "WORKSPACE", "WORKSPACE.bazel"), "bazel test //..."),
    RunnerRow("Bats", ("test/*.bats",), "bats -r test"),
    RunnerRow("Bats", ("tests/*.bats",), "bats -r tests"),
)


def detect(tree: Tree) -> Iterator[Recipe]:
    for row in ROWS:
        found = next((name for name in tree.matching(*row.markers) if _at_its_place(name, row)), "")
        if found:
            fetches = bool(row.setup) and bool(tree.matching(*row.needs))
            yield Recipe(
                row.kind,
                row.gate,
                f"found {found}",
                setup=joined(MAKE_TOOLS, row.setup) if fetches else "",
                setup_why="fetches the dependencies of the project" if fetches else "",
                needs_network=fetches,
                environment={name: Reasoned(value, "a writable folder") for name, value in row.environment},
            )


def _at_its_place(name: str, row: RunnerRow) -> bool:
    """Return whether a marker is at the depth of its pattern, because `*` also matches slashes."""
    return any(name.count("/") == marker.count("/") for marker in row.markers) or (
        row.kind in {"Perl", "Bats"} and "/" in name
    )


# ---- go --------------------------------------------------------------------------------------------------------------
# Go: modules, workspaces, vendored and downloaded modules.


CACHE = {"GOCACHE": Reasoned("/tmp/go-build", "the build cache, in a writable folder")}  # noqa: S108 - in the box
FOLDER = re.compile(r"^\s*(?:use\s+)?(\.[\w./-]*)\s*(?://.*)?$", re.MULTILINE)


def detect_go(tree: Tree) -> Iterator[Recipe]:
    if tree.has("go.work"):
        folders = FOLDER.findall(tree.text("go.work"))
        places = " ".join(
            dict.fromkeys(f"./{folder.removeprefix('./').strip('/')}/...".replace("//", "/") for folder in folders)
        )
        places = places.replace("./.", "./") if places == "././..." else places
        kind, gate, why = "a Go workspace", f"go test {places or './...'}", "go.work lists its modules"
    elif tree.has("go.mod"):
        kind, gate, why = "Go", "go test ./...", "found go.mod"
    else:
        return
    modules = "".join(map(tree.text, tree.matching("go.mod", "*/go.mod")))
    requires = re.search(r"^\s*(?:require\s+)?[\w-]+(?:\.[\w-]+)+/\S+ v\d", modules, re.MULTILINE) is not None
    if not requires or tree.has("vendor/modules.txt"):
        yield Recipe(kind, gate, why, environment=CACHE)
        return
    place = Reasoned(f"{ROOT}/{TOOLS}/go", "the folder for downloaded modules")
    yield Recipe(
        kind,
        gate,
        why,
        setup=joined(MAKE_TOOLS, "go mod download"),
        setup_why="downloads the modules in go.mod",
        needs_network=True,
        environment={**CACHE, "GOMODCACHE": place},
    )
    yield Recipe(kind, gate, why, environment=CACHE)


# ---- jvm -------------------------------------------------------------------------------------------------------------
# Java and Kotlin: Maven and Gradle with or without their wrappers. Scala: sbt.


GRADLE = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")


def detect_jvm(tree: Tree) -> Iterator[Recipe]:
    language = "Kotlin" if tree.matching("*.kt") else "Java"
    if tree.has("pom.xml"):
        program, why = (
            ("sh ./mvnw", "found mvnw, the wrapper of Maven") if tree.has("mvnw") else ("mvn", "found pom.xml")
        )
        local = f"{program} -B -q -Dmaven.repo.local={PLACE}/m2"
        yield Recipe(
            f"{language} with Maven",
            f"{local} -o test",
            why,
            setup=joined(MAKE_TOOLS, f"{{ {local} test || true; }}"),
            setup_why="runs the tests once, so that Maven fetches their dependencies",
            needs_network=True,
            environment={
                "MAVEN_USER_HOME": Reasoned(f"{PLACE}/maven", "the folder in which the wrapper installs Maven")
            },
        )
        yield Recipe(f"{language} with Maven", f"{program} -B -q -o test", why)
    if tree.has(*GRADLE):
        has_wrapper = tree.has("gradlew")
        program = "sh ./gradlew" if has_wrapper else "gradle"
        why = "found gradlew, the wrapper of Gradle" if has_wrapper else f"found {tree.first(*GRADLE)}"
        home = {"GRADLE_USER_HOME": Reasoned(f"{PLACE}/gradle", "the folder for downloads of Gradle")}
        fetch = Recipe(
            f"{language} with Gradle",
            f"{program} --no-daemon --offline test",
            why,
            setup=joined(MAKE_TOOLS, f"{{ {program} --no-daemon test || true; }}"),
            setup_why="runs the tests once, so that Gradle fetches their dependencies",
            needs_network=True,
            environment=home,
        )
        build = "".join(map(tree.text, tree.matching("*build.gradle", "*build.gradle.kts")))
        if not has_wrapper and not any(word in build for word in ("mavenCentral", "google()", "jcenter", "https://")):
            yield Recipe(fetch.kind, fetch.gate, why)
        yield fetch
    if tree.has("build.sbt"):
        yield Recipe("Scala with sbt", "sbt test", "found build.sbt")


# ---- php -------------------------------------------------------------------------------------------------------------
# PHP: PHPUnit, Pest, scripts of Composer.


INSTALL = "COMPOSER_HOME=/tmp/composer composer install --no-interaction --no-progress --quiet"
OWN_IGNORE = "echo '*' > vendor/.gitignore"


def detect_php(tree: Tree) -> Iterator[Recipe]:
    composer = tree.json("composer.json")
    if not composer and not tree.has("phpunit.xml", "phpunit.xml.dist"):
        return
    needs = {**table(composer, "require"), **table(composer, "require-dev")}
    packages = [name for name in needs if "/" in name]
    for bare in _gates(tree, composer, packages):
        if packages and not tree.has("vendor/autoload.php"):
            why = "installs the packages in composer.json"
            yield replace(bare, setup=joined(INSTALL, OWN_IGNORE), setup_why=why, needs_network=True)
        else:
            autoload = bool(table(composer, "autoload")) and not tree.has("vendor/autoload.php")
            setup = joined("COMPOSER_HOME=/tmp/composer composer dump-autoload --quiet", OWN_IGNORE) if autoload else ""
            yield replace(bare, setup=setup, setup_why="writes the autoloader" if autoload else "")


def _gates(tree: Tree, composer: dict[str, object], packages: list[str]) -> Iterator[Recipe]:
    if "test" in table(composer, "scripts"):
        yield Recipe(
            "PHP with Composer", "COMPOSER_HOME=/tmp/composer composer test", "composer.json has a script 'test'"
        )
    if "pestphp/pest" in packages:
        yield Recipe("PHP with Pest", "php vendor/bin/pest", "composer.json requires Pest")
    if "phpunit/phpunit" in packages:
        yield Recipe("PHP with PHPUnit", "php vendor/bin/phpunit", "composer.json requires PHPUnit")
    elif name := tree.first("phpunit.xml", "phpunit.xml.dist"):
        yield Recipe("PHP with PHPUnit", "phpunit", f"found {name}")
    elif tree.matching("tests/*Test.php"):
        yield Recipe("PHP with PHPUnit", "phpunit tests", "found tests in tests")


# ---- ruby ------------------------------------------------------------------------------------------------------------
# Ruby: RSpec, Minitest, Rake; gems by Bundler.


GEMS = {"BUNDLE_PATH": Reasoned(f"{ROOT}/{TOOLS}/gems", "the folder for installed gems")}
EACH = """ruby -Ilib -Itest -e 'ARGV.each { |file| require File.expand_path(file) }' """


def detect_ruby(tree: Tree) -> Iterator[Recipe]:
    tests = tree.matching("test/*_test.rb", "test/test_*.rb")
    if not (tree.has("Gemfile", "Rakefile", ".rspec") or tests or tree.matching("spec/*_spec.rb")):
        return
    for bare in _ruby_gates(tree, tests):
        if tree.has("Gemfile") and "gem " in tree.text("Gemfile"):
            yield replace(
                bare,
                gate=f"bundle exec {bare.gate}",
                setup=joined(MAKE_TOOLS, "bundle install --quiet"),
                setup_why="installs the gems in Gemfile",
                needs_network=True,
                environment=GEMS,
            )
        yield bare


def _ruby_gates(tree: Tree, tests: tuple[str, ...]) -> Iterator[Recipe]:
    rakefile = tree.text("Rakefile")
    if tree.matching("spec/*_spec.rb") or tree.has(".rspec"):
        yield Recipe("Ruby with RSpec", "rspec", "found specs or .rspec")
    if "TestTask" in rakefile or "task :test" in rakefile or "task test" in rakefile:
        yield Recipe("Ruby with Rake", "rake test", "Rakefile has a task 'test'")
    if "task :spec" in rakefile or "RSpec::Core::RakeTask" in rakefile:
        yield Recipe("Ruby with Rake", "rake spec", "Rakefile has a task 'spec'")
    if tree.has("bin/rails"):
        yield Recipe("Ruby on Rails", "ruby bin/rails test", "found bin/rails")
    if tests:
        yield Recipe(
            "Ruby with Minitest", f"{EACH}$(find test -name '*_test.rb' -o -name 'test_*.rb')", f"{tests[0]} is a test"
        )


# ---- rust ------------------------------------------------------------------------------------------------------------
# Rust: cargo, workspaces, vendored and fetched crates.


DEPENDENCIES = ("dependencies", "dev-dependencies", "build-dependencies")


def detect_rust(tree: Tree) -> Iterator[Recipe]:
    if not tree.has("Cargo.toml"):
        return
    is_workspace = "workspace" in tree.toml("Cargo.toml")
    kind = "a Rust workspace" if is_workspace else "Rust with cargo"
    gate = "cargo test --workspace" if is_workspace else "cargo test"
    why = "Cargo.toml defines a workspace" if is_workspace else "found Cargo.toml"
    if _is_offline(tree):
        yield Recipe(kind, gate, why)
        return
    locked = " --locked" if tree.has("Cargo.lock") else ""
    place = Reasoned(f"{ROOT}/{TOOLS}/cargo", "the folder for fetched crates")
    yield Recipe(
        kind,
        f"{gate} --offline",
        why,
        setup=joined(MAKE_TOOLS, f"cargo fetch{locked}"),
        setup_why="fetches the crates in Cargo.toml",
        needs_network=True,
        environment={"CARGO_HOME": place},
    )
    yield Recipe(kind, f"{gate} --offline", why)


def _is_offline(tree: Tree) -> bool:
    """Return whether all crates are in the repository."""
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


# ---- native ----------------------------------------------------------------------------------------------------------
# C and C++: CMake, Meson, autotools. For plain Makefiles, see `runners.py`.


def detect_native(tree: Tree) -> Iterator[Recipe]:
    if tree.has("CMakeLists.txt"):
        yield from _cmake(tree)
    if tree.has("meson.build"):
        yield from _meson(tree)
    if tree.has("configure", "configure.ac", "configure.in", "autogen.sh"):
        yield from _autotools(tree)


def _cmake(tree: Tree) -> Iterator[Recipe]:
    build = _build_folder(tree)
    gate = f"cmake -S . -B {build} && cmake --build {build} -j 2 && ctest --test-dir {build} --output-on-failure"
    why = "found CMakeLists.txt"
    if re.search(r"\b(?:enable_testing|include\s*\(\s*CTest)\b", _all_lists(tree)):
        yield Recipe("C or C++ with CMake", gate, why)
    else:
        gate, why = (
            f"cmake -S . -B {build} && cmake --build {build} -j 2",
            f"{why} without tests, so the gate only builds",
        )
        yield Recipe("C or C++ with CMake", gate, why, only_builds=True)


def _all_lists(tree: Tree) -> str:
    return "".join(map(tree.text, tree.matching("CMakeLists.txt", "*/CMakeLists.txt")[:50]))


def _meson(tree: Tree) -> Iterator[Recipe]:
    build = _build_folder(tree)
    gate, why = f"meson setup {build} && meson test -C {build} --print-errorlogs", "found meson.build"
    if tree.has_program("meson"):
        yield Recipe("C or C++ with Meson", gate, why)
        return
    install, _ = install_tool("meson", "meson ninja")
    place = ".fleet-tools/meson"
    setup = install.replace("/tmp/meson", place)  # noqa: S108 - the gate needs it too, so it can't be in /tmp
    yield Recipe(
        "C or C++ with Meson",
        gate,
        why,
        setup=f"{setup} && echo '*' > .fleet-tools/.gitignore",
        setup_why="installs Meson, which this machine lacks",
        needs_network=True,
        bin=(f"{place}/bin",),
    )


def _autotools(tree: Tree) -> Iterator[Recipe]:
    make = "./configure && make -j 2 check"
    if tree.has("configure"):
        yield Recipe("C or C++ with autotools", f"sh {make}", "found configure")
    if tree.has("autogen.sh"):
        yield Recipe("C or C++ with autotools", f"sh ./autogen.sh && {make}", "autogen.sh writes configure")
    if tree.has("configure.ac", "configure.in"):
        yield Recipe("C or C++ with autotools", f"autoreconf -fi && {make}", "found configure.ac")


def _build_folder(tree: Tree) -> str:
    """Return a folder for build output: an ignored folder, or a temporary folder in the sandbox."""
    rules = {line.strip().strip("/") for line in tree.text(".gitignore").splitlines()}
    return "build" if "build" in rules and not tree.matching("build/*") else "/tmp/build"  # noqa: S108 - in the box
