"""Determines which paths of a change could influence its verdict, and how to neutralize them.

A subtask owns the paths in its `touches`. If a change modifies a judge that the subtask does not own, the base's
version of the judge is used. Added tests are removed for a second verdict unless a criterion names them, because their
code runs in the process of the existing tests. Files that shadow something that a verdict imports or runs are rejected.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fleet.core.base.paths import TEST_FOLDERS, folders_above, is_test, matches
from fleet.core.plans.plan import Criterion
from fleet.core.verdicts.commands import CommandReading
from fleet.core.verdicts.summaries import PATH_WORD, borrowed_tests, is_named

# ---- module names ----------------------------------------------------------------------------------------------------
# Names that Python and the runners of its tests import: a new module of such a name would be loaded instead.
#
# A list and not `sys.stdlib_module_names`: the Python that matters runs in the box, and is another one.


STANDARD_LIBRARY = frozenset(
    (
        "abc aifc antigravity argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb binascii "
        "bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections "
        "colorsys compileall concurrent configparser contextlib contextvars copy copyreg crypt csv ctypes "
        "curses dataclasses datetime dbm decimal difflib dis distutils doctest email encodings ensurepip enum "
        "errno faulthandler fcntl filecmp fileinput fnmatch fractions ftplib functools gc genericpath getopt "
        "getpass gettext glob graphlib grp gzip hashlib heapq hmac html http idlelib imaplib imghdr imp "
        "importlib inspect io ipaddress itertools json keyword lib2to3 linecache locale logging lzma mailbox "
        "mailcap marshal math mimetypes mmap modulefinder msilib msvcrt multiprocessing netrc nis nntplib nt "
        "ntpath nturl2path numbers opcode operator optparse os ossaudiodev pathlib pdb pickle pickletools "
        "pipes pkgutil platform plistlib poplib posix posixpath pprint profile pstats pty pwd py_compile "
        "pyclbr pydoc pydoc_data pyexpat queue quopri random re readline reprlib resource rlcompleter runpy "
        "sched secrets select selectors shelve shlex shutil signal site smtpd smtplib sndhdr socket "
        "socketserver spwd sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string stringprep "
        "struct subprocess sunau symtable sys sysconfig syslog tabnanny tarfile telnetlib tempfile termios "
        "textwrap this threading time timeit tkinter token tokenize tomllib trace traceback tracemalloc tty "
        "turtle turtledemo types typing unicodedata unittest urllib uu uuid venv warnings wave weakref "
        "webbrowser winreg winsound wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo"
    ).split()
)
RUNNERS = frozenset(
    "pytest _pytest py pluggy iniconfig nose nose2 tox nox coverage xdist pytest_cov hypothesis mock tap ward behave "
    "ruff mypy flake8 pylint black isort pyright bandit pycodestyle pyflakes setuptools pip pkg_resources".split()
)


# ---- judges ----------------------------------------------------------------------------------------------------------


CODE = re.compile(
    r".*\.(?:pyi?|pyx|[cm]?jsx?|[cm]?tsx?|vue|go|rs|rb|php|pl|lua|sh|bash|java|kt|cs|swift|exs?|c|cc|cpp|h)"
)
JAVASCRIPT = re.compile(r"(.+?)\.(?:[cm]?jsx?|[cm]?tsx?)")
SCRIPTS = ("js", "cjs", "mjs", "jsx", "ts", "cts", "mts", "tsx")
COMPILED = re.compile(r"([^/.]+)\.(?:[\w.-]+\.)?(?:so|pyd|pyc|pyo)")
IMPORTABLE = STANDARD_LIBRARY | RUNNERS
SPECIAL = frozenset({"__init__", "__main__", "conftest", "setup"})
HELPERS = frozenset(
    "helper fixture support factory factorie fake stub mock golden expected expectation assertion matcher".split()
)
INSTALLED = frozenset({"node_modules", "site-packages", "dist-packages"})
MOCKS = frozenset({"__mocks__", "__snapshots__"})


@dataclass(frozen=True, slots=True)
class VerdictInfluence:
    """The paths of one change that could turn its verdict."""

    judges: tuple[str, ...] = ()
    """Judges of the base that it changed or removed, although its `touches` does not name them."""
    tests: tuple[str, ...] = ()
    """Code that it added where tests are found."""
    shadows: tuple[tuple[str, str], ...] = ()
    """New paths that shadow something else, each with a description."""
    noted: tuple[tuple[str, str], ...] = ()
    """Paths that a person should look at, each with the reason."""


def influence(
    paths: Sequence[str], base: Collection[str], touches: Sequence[str], commands: CommandReading, own: CommandReading
) -> VerdictInfluence:
    """Return the possible influence of changed paths on a base with these files.

    `commands` are all files that the checks run and read, `own` only those named in the commands.
    """
    changed = [path for path in paths if path in base and not matches(path, touches)]
    added = [path for path in paths if path not in base]
    judges = {*borrowed_tests(changed, touches), *filter(commands.is_judge, changed)}
    handed_over = [path for path in paths if path in base and is_test(path) and matches(path, touches)]
    ours = {path for path in added if handed_over and matches(path, touches)}
    return VerdictInfluence(
        judges=tuple(path for path in changed if path in judges),
        tests=tuple(path for path in added if _joins_tests(path, base) and path not in ours),
        shadows=tuple(
            (path, what) for path in added if path not in touches and (what := _shadowed(path, paths, base, commands))
        ),
        noted=(
            *(
                (path, "is used by a check, and was changed")
                for path in changed
                if commands.is_feed(path) and path not in judges
            ),
            *(
                (path, "is loaded by a check, and is new")
                for path in added
                if commands.is_judge(path) and not own.is_judge(path)
            ),
            *(
                (path, f"may be an output of the make rule `{rule}`, and is new")
                for path in added
                for rule in commands.targets
                if _fits_rule(path, rule)
            ),
            *((path, "looks like a test helper, and was changed") for path in changed if _helps_tests(path, judges)),
        ),
    )


def _fits_rule(path: str, rule: str) -> bool:
    """Return whether a pattern rule of make would create this path. Rules that fit nearly every path are ignored."""
    before, percent, after = rule.partition("%")
    return bool(percent) and len(before + after) > 1 and path.startswith(before) and path.endswith(after)


def _helps_tests(path: str, judges: Collection[str]) -> bool:
    """Return whether a file name looks like a test helper."""
    words = re.findall(r"[A-Z]?[a-z]+", path.rpartition("/")[2].partition(".")[0])
    return path not in judges and any(word.lower().removesuffix("s") in HELPERS for word in words)


def naming(criteria: Sequence[Criterion], added: Iterable[str], base: Collection[str]) -> tuple[Criterion, ...]:
    """The criteria whose command names one of these new paths itself, or a new folder above it."""
    old = {folder for path in base for folder in folders_above(path)}
    new = tuple(added)
    return tuple(
        criterion
        for criterion in criteria
        if (words := {w for w in PATH_WORD.findall(criterion.run or "") if w.removeprefix("./").rstrip("/") not in old})
        and any(is_named(path, words) or _is_target_of_cargo(path, criterion.run or "") for path in new)
    )


def _is_target_of_cargo(path: str, command: str) -> bool:
    """Whether `--test NAME` names a file of Rust's integration tests."""
    folder, _, name = path.rpartition("/")
    asked = re.findall(r"--test[ =]([\w-]+)", command)
    return folder.rpartition("/")[2] == "tests" and name.removesuffix(".rs") in asked


def _joins_tests(path: str, base: Collection[str]) -> bool:
    """Whether a new file is code that a runner finds, or that tests which stood would load."""
    *folders, name = path.split("/")
    if MOCKS.intersection(folders):
        return True
    if CODE.fullmatch(name) is None:
        return False
    if is_test(name):
        return True
    if name in {"__init__.py", "conftest.py"}:
        folder = path.rpartition("/")[0]
        return any(
            is_test(each) and each.rpartition("/")[0].startswith(folder) for each in base if each.endswith(".py")
        )
    return bool((TEST_FOLDERS - {"testing"}).intersection(folders))


# ---- shadows -------------------------------------------------------------------------------------------------------


def _shadowed(path: str, paths: Collection[str], base: Collection[str], commands: CommandReading) -> str | None:
    """Describe the file that a new path shadows, or return None."""
    folder, _, name = path.rpartition("/")
    if INSTALLED.intersection(path.split("/")):
        return "is in a directory that is searched for installed packages"
    if target := next((each for each in (*folders_above(path), path) if each in commands.targets), None):
        return f"makes the make target `{target}` look up to date"
    if compiled := COMPILED.fullmatch(name):
        others: Iterable[str] = (f"{_below(folder)}{compiled[1]}.py",)
    elif (script := JAVASCRIPT.fullmatch(name)) and not name.endswith(".d.ts"):
        stems = (script[1], f"{script[1]}/index")
        others = (f"{_below(folder)}{stem}.{ending}" for stem in stems for ending in SCRIPTS)
    else:
        return _shadowed_module(path, paths, base)
    namesake: str | None = next((each for each in others if each in base and each not in paths), None)
    return f"can be loaded instead of {namesake}" if namesake else None


def _shadowed_module(path: str, paths: Collection[str], base: Collection[str]) -> str | None:
    """Describe the module that a new Python module or package is imported instead of."""
    folder, module = _module(path)
    if not module or module in SPECIAL:
        return None
    if path.endswith("/__init__.py"):
        other = f"{_below(folder)}{module}.py"
        if other in base and other not in paths:
            return f"is imported instead of {other}"
    elsewhere = [each for each in _import_folders(base) if each != folder]
    if folder not in _import_folders(base) or f"{_below(folder)}__init__.py" in base:
        return None
    if module in IMPORTABLE:
        return f"is imported instead of the module `{module}` that comes with Python or a runner"
    if is_test(f"{module}.py"):
        return None
    rival = next((found for each in elsewhere for found in _modules(each, module) if found in base), None)
    return f"can be imported instead of {rival}" if rival and rival not in paths else None


def _module(path: str) -> tuple[str, str]:
    """The folder of a module or package that a path belongs to at its top, and its name."""
    folder, _, name = path.rpartition("/")
    if name == "__init__.py":
        parent, _, package = folder.rpartition("/")
        return parent, package
    return (folder, name.removesuffix(".py")) if name.endswith(".py") else ("", "")


def _import_folders(base: Collection[str]) -> frozenset[str]:
    """Return the directories that Python searches for modules when tests run: the root, `src`, and those of tests."""
    tests = (path.rpartition("/")[0] for path in base if path.endswith(".py") and is_test(path))
    return frozenset({"", "src", "lib", "python", *tests})


def _modules(folder: str, module: str) -> Iterator[str]:
    yield f"{_below(folder)}{module}.py"
    yield f"{_below(folder)}{module}/__init__.py"


def _below(folder: str) -> str:
    return f"{folder}/" if folder else ""


# ---- findings --------------------------------------------------------------------------------------------------------
# Results of analysers: a change must not add findings compared to the run's base.
#
# The exit code of an analyser only shows whether it found something, so it is ignored. Missing results are a failure.


NO_RESULTS = "[fleet] no readable results found at {tests}"
NO_FINDINGS_BEFORE = "[fleet] no readable results on the run's base to compare with"
MOST_SHOWN = 20


def is_analysis(criterion: Criterion) -> bool:
    """Whether the results of a check are findings instead of tests."""
    return criterion.tests is not None and criterion.tests.startswith("sarif:")


def findings_problem(criterion: Criterion, before: frozenset[str] | None, now: frozenset[str] | None) -> str | None:
    """Return why the results of an analyser fail, or None without new findings."""
    if now is None:
        return NO_RESULTS.format(tests=criterion.tests)
    if before is None:
        return NO_FINDINGS_BEFORE
    new = sorted(now - before)
    if not new:
        return None
    more = [f"and {len(new) - MOST_SHOWN} more"] if len(new) > MOST_SHOWN else []
    return "\n".join((f"[fleet] {len(new)} new findings compared to the run's base:", *new[:MOST_SHOWN], *more))
