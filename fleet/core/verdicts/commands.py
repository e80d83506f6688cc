"""Determines the files that the command of a check runs and reads, from its text and without running it.

A judge is a file whose exit code is the verdict, whose content is compared with the work, or that configures the
program. A file that only produces input, or that an inspector (`grep`, `test`, a linter) reads, is judged.
"""

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, pairwise, takewhile
from posixpath import join, normpath
from typing import Literal

from fleet.core.base.paths import matches

Kind = Literal["shell", "code", "make", "package", "tox", "nox", "just", "pytest", "javascript"]
ROOT = "/repo/"  # path of the worktree in the sandbox
MOST_COMMANDS = 400  # of one text: more are not looked at
NESTED = 4  # substitutions within each other
KEYWORDS = frozenset("if then else elif fi do done while until for case esac time ! exec command nohup".split())
SHELLS = re.compile(r"(?:ba|da|z|k|a)?sh")
PYTHON = re.compile(r"python[\d.]*|pypy3?")
INTERPRETER = re.compile(
    r"(?:ba|da|z|k|a)?sh|python[\d.]*|pypy3?|node|nodejs|deno|bun|tsx|ts-node|ruby|perl|php|lua|pwsh"
    r"|tclsh|expect|Rscript|julia|elixir|escript|raku|groovy|swift|bats|prove"
)
INLINE = {"-c", "-e", "-p", "--eval", "--print"}
COMPARES = frozenset("diff cmp comm colordiff sdiff sha1sum sha256sum sha512sum md5sum cksum b2sum".split())
INSPECTS = frozenset(
    "grep egrep fgrep rg test [ [[ ls stat find head tail wc file sort uniq shellcheck ruff mypy flake8 pylint black "
    "isort pyright eslint prettier tsc biome xmllint yamllint jsonlint".split()
)
JAVASCRIPT_RUNNERS = frozenset({"jest", "vitest", "mocha", "ava", "karma", "playwright", "cypress", "jasmine"})
PACKAGE_MANAGERS = frozenset({"npm", "yarn", "pnpm", "bun"})
RUNS_ANOTHER = frozenset("env time nice stdbuf xvfb-run npx bunx timeout".split())
READS = frozenset("cat jq yq awk gawk mawk sed".split())
RUN = frozenset("uv poetry pdm hatch pipenv rye coverage".split())
"""Programs that run another one with `run`."""
CONFIGURES = re.compile(
    r"--(?:config|configFile|config-file|rcfile|require|import|loader|settings|env-file|tsconfig|test-reporter"
    r"|setupFiles|globalSetup|reporters?|environment)"
)
SHORT = {"-c", "-p", "-r"}
LOADS = frozenset({"pytest", "py.test", "jest", "mocha", "ava", "node", "ruby", "nodejs", "tsx", "ts-node"})
"""Programs whose short options name a configuration or a module to load."""
SUBSTITUTION = re.compile(r"[$<>]\(([^()]*)\)|`([^`]*)`")
LOOP = re.compile(r"\bfor\s+([A-Za-z_]\w*)\s+in\s+([^;\n]*)")
MOST_LOOPS, MOST_TURNS = 4, 50
LONGEST = 100_000  # characters of a text in which loops are unrolled
LONGEST_LOOP = 2_000  # characters of a loop's values that replace its variable
RUNS_FOUND = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
GLOB = re.compile(r"[*?]")


@dataclass(frozen=True, slots=True)
class CommandSource:
    """A file of the repository that refers to other files that a command runs."""

    kind: Kind
    paths: tuple[str, ...]
    """Possible names. All existing files are read."""
    names: tuple[str, ...] = ()
    """The targets or scripts that are run."""


@dataclass(frozen=True, slots=True)
class CommandReading:
    """Files that commands run and read, as paths or patterns relative to the root. Some may not exist."""

    judges: frozenset[str] = frozenset()
    """Files that decide, serve for comparison, or configure."""
    feeds: frozenset[str] = frozenset()
    """Files that produce the judged output or its input."""
    targets: frozenset[str] = frozenset()
    """Targets of make, which a file of the same name would satisfy. Pattern rules contain a `%`."""
    sources: tuple[CommandSource, ...] = ()

    def __or__(self, other: "CommandReading") -> "CommandReading":
        return CommandReading(
            self.judges | other.judges,
            self.feeds | other.feeds,
            self.targets | other.targets,
            tuple(dict.fromkeys((*self.sources, *other.sources))),
        )

    def is_judge(self, path: str) -> bool:
        return _is_among(path, self.judges)

    def is_feed(self, path: str) -> bool:
        return _is_among(path, self.feeds)


def _is_among(path: str, names: frozenset[str]) -> bool:
    return path in names or matches(path, (name for name in names if GLOB.search(name)))


@dataclass(slots=True)
class _Command:
    """A simple command."""

    words: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    """Files that the input is redirected from."""
    decides: bool = True
    """Whether its exit code can be the result: not at the start of a pipe, not for its output."""
    piped: list[str] = field(default_factory=list)
    """The words of the command whose output it reads."""


def reading(text: str, folder: str = "") -> CommandReading:
    """Return the files that shell commands run and read, if started in this directory."""
    found = CommandReading()
    for number, command in enumerate(_commands(text)):
        if number >= MOST_COMMANDS:
            break
        if command.words[:1] == ["cd"] and len(command.words) > 1:
            folder = resolved(folder, command.words[1])
            continue
        found |= _reading_of(command, folder)
    return found


def resolved(folder: str, word: str) -> str:
    """Return a path relative to the root. A path outside the repository becomes one that does not exist."""
    path = normpath(join(folder, word.removeprefix(ROOT).removeprefix("<rootDir>/")))
    return "" if path == "." else path


# ---- words ---------------------------------------------------------------------------------------------------------


def _commands(text: str, nested: int = 0, *, decides: bool = True) -> Iterator[_Command]:
    """Return the simple commands of a shell text. Constructs that require a shell become plain words."""
    text = _unroll(text.replace("\\\n", " "))
    for _ in range(NESTED):
        for inner in SUBSTITUTION.findall(text):
            if nested < NESTED:
                yield from _commands("".join(inner), nested + 1, decides=False)
        text = SUBSTITUTION.sub(" _ ", text)
    for line in text.splitlines():
        yield from _commands_in(line, decides=decides)


def _unroll(text: str) -> str:
    """The text once for each turn of its loops, with a value in the place of the loop's variable."""
    for variable, values in LOOP.findall(text)[:MOST_LOOPS]:
        name = rf"\$(?:{variable}\b|\{{{variable}\}})"
        turns = values[:LONGEST_LOOP].split()[:MOST_TURNS]
        unrolled = [re.sub(name, turn.replace("\\", ""), text, count=MOST_TURNS) for turn in turns]
        text = "\n".join(unrolled or [text])[:LONGEST]
    return text


def _commands_in(line: str, *, decides: bool) -> Iterator[_Command]:
    command, before = _Command(decides=decides), ""
    for token in _tokens(line):
        if before.startswith("<"):
            command.read.append(token)
        elif before.startswith(">"):
            pass
        elif token and set(token) <= set(";|&(){}"):
            command.decides = command.decides and token not in {"|", "|&"}
            if command.words:
                yield command
            command = _Command(decides=decides, piped=command.words if token in {"|", "|&"} else [])
        elif token and set(token) <= set("<>&"):
            command.decides = command.decides and not token.startswith(">")
        elif command.words or not (token in KEYWORDS or re.fullmatch(r"\w+=.*", token, re.DOTALL)):
            command.words.append(token)
        before = token if token and set(token) <= set("<>&") else ""
    if command.words:
        yield command


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()<>{}")
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        return list(lexer)
    except ValueError:  # quotes that end on another line
        return re.findall(r"[;|&(){}<>]+|[^\s;|&(){}<>'\"]+", line)


# ---- commands ------------------------------------------------------------------------------------------------------


def _reading_of(command: _Command, folder: str) -> CommandReading:
    words = _without_wrappers(command.words)
    if not words:
        return CommandReading()
    program = words[0].rsplit("/", 1)[-1]
    found = CommandReading(
        judges=frozenset(resolved(folder, word) for word in _configuration(words)),
        feeds=frozenset(resolved(folder, word) for word in command.read),
    )
    if "/" in words[0] and not words[0].startswith("/usr/"):
        found |= _started(words[0], words[1:], folder, decides=command.decides, is_shell=True)
    if program in {"find", "xargs"}:
        return found | _found(command, words, folder)
    if PYTHON.fullmatch(program) and "-m" in words:
        return found | _module(command, words[words.index("-m") + 1 :], folder)
    if INTERPRETER.fullmatch(program):
        return found | _interpreted(program, words[1:], folder, decides=command.decides)
    if program in {".", "source"}:
        return found | _started(words[1] if words[1:] else "", [], folder, decides=True, is_shell=True)
    if program in COMPARES or (program in {"grep", "egrep", "rg"} and "-f" in words):
        given = words[1:] if program in COMPARES else words[words.index("-f") + 1 :][:1]
        return found | CommandReading(judges=_paths(folder, (*given, *command.read)))
    if reader := READERS.get(program):
        return found | reader(program, words[1:], folder)
    if program in INSPECTS:
        return found
    return found | CommandReading(feeds=_paths(folder, words[1:]) if program in READS else frozenset())


def _found(command: _Command, words: Sequence[str], folder: str) -> CommandReading:
    """Handle `find FOLDER -exec sh {} ;`, `find FOLDER | xargs sh` and `xargs sh < list`."""
    if words[0].endswith("find"):
        at = next((number for number, word in enumerate(words) if word in RUNS_FOUND), len(words))
        given, inner = words[1:at], words[at + 1 :]
    else:
        given, inner = command.piped[1:], list(dropwhile(lambda word: re.fullmatch(r"-.*|\d+", word), words[1:]))
    starts = list(takewhile(lambda word: not word.startswith(("-", "!")), given)) or ["."]
    names = [following for word, following in pairwise(given) if word in {"-name", "-iname"}] or [""]
    below = [f"{start.rstrip('/')}/**/{name}" for start in starts if not GLOB.search(start) for name in names]
    read = _Command([*inner, *(below or starts)], command.read, command.decides)
    return _reading_of(read, folder) if inner else CommandReading()


def _without_wrappers(words: Sequence[str]) -> list[str]:
    """The words of the program that is run in the end."""
    left = list(words)
    while left:
        program = left[0].rsplit("/", 1)[-1]
        if program in RUN and "run" in left[1:4]:
            left = left[left.index("run") + 1 :]
        elif program in RUNS_ANOTHER:
            left = left[1:]
        else:
            return left
        while left and re.fullmatch(r"-.*|\w+=.*|[\d.]+[smhd]?", left[0], re.DOTALL):  # its options
            left = left[1:]
    return left


def _configuration(words: Sequence[str]) -> Iterator[str]:
    """Return the values of options that name a configuration or a module to load."""
    is_loader = words[0].rsplit("/", 1)[-1] in LOADS
    for word, following in pairwise((*words, "")):
        option, is_joined, value = word.partition("=")
        if CONFIGURES.fullmatch(option) or (is_loader and option in SHORT):
            value = value if is_joined else following
            yield value
            if option == "-p":  # a plugin of pytest is a module
                yield f"{value.replace('.', '/')}.py"


def _paths(folder: str, words: Sequence[str]) -> frozenset[str]:
    return frozenset(resolved(folder, word) for word in words if word and not word.startswith("-"))


def _started(file: str, rest: Sequence[str], folder: str, *, decides: bool, is_shell: bool) -> CommandReading:
    """Return a file of the repository that is run, and its arguments."""
    path = resolved(folder, file)
    decides = decides and not re.match(r"[^/]*[*?]", path)  # any file of the root may be what is judged
    sources = (CommandSource("shell", (path,)),) if is_shell else (CommandSource("code", (path,)),) if decides else ()
    files, given = frozenset({path}), _paths(folder, rest)
    return (
        CommandReading(files, given, sources=sources)
        if decides
        else CommandReading(feeds=files | given, sources=sources)
    )


def _interpreted(program: str, words: Sequence[str], folder: str, *, decides: bool) -> CommandReading:
    """`sh FILE`, `sh -c TEXT`, `python3 FILE`, `node --test`."""
    is_shell = SHELLS.fullmatch(program) is not None
    if words[:1] in (["-n"], ["--check"]):  # checks the syntax without running the file
        return CommandReading()
    for number, word in enumerate(words):
        is_inline = re.fullmatch(r"-\w*c", word) is not None if is_shell else word in INLINE
        if is_inline and words[number + 1 :]:
            text = words[number + 1]
            names = re.findall(r"[\w./-]+\.\w+", text)
            return reading(text, folder) if is_shell else CommandReading(feeds=_paths(folder, names))
        if word == "--test" or (program in PACKAGE_MANAGERS and word in {"test", "run"}):
            return CommandReading(
                sources=(CommandSource("package", (resolved(folder, "package.json"),), tuple(words[number:][:2])),)
            )
        if not word.startswith("-") and not (
            number and words[number - 1] in {"-r", "--require", "--import", "--loader"}
        ):
            return _started(word, words[number + 1 :], folder, decides=decides, is_shell=is_shell)
    return CommandReading()


def _module(command: _Command, words: Sequence[str], folder: str) -> CommandReading:
    """`python -m NAME`: a module of the repository, or a program of that name."""
    if not words:
        return CommandReading()
    path = resolved(folder, words[0].replace(".", "/"))
    files = frozenset({f"{path}.py", f"{path}/__main__.py", f"src/{path}.py", f"src/{path}/__main__.py"})
    own = CommandReading(judges=files) if command.decides else CommandReading(feeds=files)
    return own | _reading_of(_Command([*words], command.read, command.decides), folder)


# ---- programs that read what they run --------------------------------------------------------------------------------


def _go(_: str, words: Sequence[str], folder: str) -> CommandReading:
    """`go run ./check` runs the package of a folder, or single files."""
    given = [word for word in words[1:] if not word.startswith("-")][:1] if words[:1] == ["run"] else []
    paths = _paths(folder, given)
    return CommandReading(
        judges=paths | {f"{path}/*.go" if path else "*.go" for path in paths if not path.endswith(".go")}
    )


def _make(_: str, words: Sequence[str], folder: str) -> CommandReading:
    file, names, before = "", list[str](), ""
    for word in words:
        if before in {"-C", "--directory"}:
            folder = resolved(folder, word)
        elif before in {"-f", "--file", "--makefile"}:
            file = word
        elif not word.startswith("-") and "=" not in word and before not in {"-j", "-l", "-o", "-W"}:
            names.append(word)
        before = word
    files = (file,) if file else ("GNUmakefile", "makefile", "Makefile")
    targets = frozenset(resolved(folder, name) for name in names)
    paths = _at(folder, files)
    return CommandReading(
        frozenset(paths if file else ()), targets=targets, sources=(CommandSource("make", paths, tuple(names)),)
    )


def _package(_: str, words: Sequence[str], folder: str) -> CommandReading:
    plain = list[str]()
    before = ""
    for word in words:
        if before in {"--prefix", "--cwd", "-C"}:
            folder = resolved(folder, word)
        elif not word.startswith("-") and word not in {"run", "run-script", "exec", "x"}:
            plain.append(word)
        before = word
    name = {"t": "test", "tst": "test"}.get(plain[0], plain[0]) if plain else ""
    rest = reading(" ".join(plain), folder) if "exec" in words or "x" in words else CommandReading()
    return rest | CommandReading(
        sources=(CommandSource("package", _at(folder, ("package.json",)), (f"pre{name}", name, f"post{name}")),)
    )


def _configured(program: str, words: Sequence[str], folder: str) -> CommandReading:
    """A program that finds its configuration by itself."""
    kind, names = CONFIGURATIONS[program]
    given = tuple(word for word in words if not word.startswith("-"))
    return CommandReading(sources=(CommandSource(kind, _at(folder, names), given),))


def _at(folder: str, names: Collection[str]) -> tuple[str, ...]:
    return tuple(resolved(folder, name) for name in names)


JAVASCRIPT_CONFIGURATIONS = (
    *(
        f"{stem}.{ending}"
        for stem in ("jest.config", "vitest.config", "vite.config", ".mocharc", "karma.conf", "playwright.config")
        for ending in ("js", "ts", "mjs", "cjs", "mts", "json", "yml", "yaml")
    ),
    "package.json",
)
PYTEST_CONFIGURATIONS = ("pytest.ini", ".pytest.ini", "pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg")
CONFIGURATIONS: dict[str, tuple[Kind, tuple[str, ...]]] = {
    **dict.fromkeys(JAVASCRIPT_RUNNERS, ("javascript", JAVASCRIPT_CONFIGURATIONS)),
    **dict.fromkeys(("pytest", "py.test"), ("pytest", PYTEST_CONFIGURATIONS)),
    "tox": ("tox", ("tox.ini", "setup.cfg", "pyproject.toml")),
    "nox": ("nox", ("noxfile.py",)),
    "just": ("just", ("justfile", "Justfile", ".justfile")),
}
READERS: dict[str, Callable[[str, Sequence[str], str], CommandReading]] = {
    **dict.fromkeys(("make", "gmake"), _make),
    "go": _go,
    **dict.fromkeys(PACKAGE_MANAGERS, _package),
    **dict.fromkeys(CONFIGURATIONS, _configured),
}
