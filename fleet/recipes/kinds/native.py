"""C and C++: CMake, Meson, autotools. A plain Makefile is a task runner's (`runners.py`)."""

import re
from collections.abc import Iterator

from fleet.recipes.recipe import Recipe, install_tool
from fleet.recipes.tree import Tree


def detect(tree: Tree) -> Iterator[Recipe]:
    if tree.has("CMakeLists.txt"):
        yield from _cmake(tree)
    if tree.has("meson.build"):
        yield from _meson(tree)
    if tree.has("configure", "configure.ac", "configure.in", "autogen.sh"):
        yield from _autotools(tree)


def _cmake(tree: Tree) -> Iterator[Recipe]:
    build = _build_folder(tree)
    gate = f"cmake -S . -B {build} && cmake --build {build} -j 2 && ctest --test-dir {build} --output-on-failure"
    why = "CMakeLists.txt is CMake's"
    if re.search(r"\b(?:enable_testing|include\s*\(\s*CTest)\b", _all_lists(tree)):
        yield Recipe("C or C++ with CMake", gate, why)
    else:
        gate, why = (
            f"cmake -S . -B {build} && cmake --build {build} -j 2",
            f"{why}; it has no tests, so it is only built",
        )
        yield Recipe("C or C++ with CMake", gate, why, only_builds=True)


def _all_lists(tree: Tree) -> str:
    return "".join(map(tree.text, tree.matching("CMakeLists.txt", "*/CMakeLists.txt")[:50]))


def _meson(tree: Tree) -> Iterator[Recipe]:
    build = _build_folder(tree)
    gate, why = f"meson setup {build} && meson test -C {build} --print-errorlogs", "meson.build is Meson's"
    if tree.has_program("meson"):
        yield Recipe("C or C++ with Meson", gate, why)
        return
    install, _ = install_tool("meson", "meson ninja")
    place = ".fleet-tools/meson"
    setup = install.replace("/tmp/meson", place)  # noqa: S108 - the gate needs it, so it stays
    yield Recipe(
        "C or C++ with Meson",
        gate,
        why,
        setup=f"{setup} && echo '*' > .fleet-tools/.gitignore",
        setup_why="this machine has no meson",
        needs_network=True,
        bin=(f"{place}/bin",),
    )


def _autotools(tree: Tree) -> Iterator[Recipe]:
    make = "./configure && make -j 2 check"
    if tree.has("configure"):
        yield Recipe("C or C++ with autotools", f"sh {make}", "configure is autoconf's")
    if tree.has("autogen.sh"):
        yield Recipe("C or C++ with autotools", f"sh ./autogen.sh && {make}", "autogen.sh writes configure")
    if tree.has("configure.ac", "configure.in"):
        yield Recipe("C or C++ with autotools", f"autoreconf -fi && {make}", "configure.ac is autoconf's")


def _build_folder(tree: Tree) -> str:
    """A folder for what is built: one that git ignores, or one that no worker can leave behind."""
    rules = {line.strip().strip("/") for line in tree.text(".gitignore").splitlines()}
    return "build" if "build" in rules and not tree.matching("build/*") else "/tmp/build"  # noqa: S108 - in the box
