"""Finds added lines that could influence the checks that judge them, for a human to review before merging.

A worker's code runs in the process of the tests, so the list can't be complete, and suspicious code is not a proof of
bad faith. Such a change lands if its checks pass, and a note names it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from fleet.core.base.paths import is_test

LONGEST = 2_000  # characters of a line that are looked at
CUT = re.compile(r"^\[\.\.\. \d+ bytes left out", re.MULTILINE)
_WRITES = (
    r"(?:write_text|write_bytes|writeFile(?:Sync)?|WriteFile|fs::write|os\.(?:rename|replace|remove|unlink)|\.unlink\()"
)
_READ = r"(?:test|spec|conftest|check|expected|__file__|argv)"
ANYWHERE: Mapping[str, re.Pattern[str]] = {
    "ends the test process": re.compile(
        r"\b_exit\b|\bos\.(?:kill\s*\(\s*os\.getpid|abort|exec\w+\s*\()|\batexit\.register|^\s*(?:exit|quit)\s*\("
        r"|(?<!except )\b(?:sys\.exit|SystemExit)\b(?!\s*\(\s*(?:[1-9]|f?[\"']|\w*main\())"
        r"|\bprocess(?:\.(?:exitCode|abort|reallyExit|kill|exit\b(?!\s*\(\s*[1-9]))|\s*\[)|\bDeno\.exit\b"
        r"|\bos\.Exit\b(?!\s*\(\s*[1-9])|\bsyscall\.(?:Exit|Kill|Raw\w*|Syscall\w*)\b|\bprocess::(?:abort|exit\s*\((?!\s*[1-9]))|\blibc::_?exit\b"
        r"|\bSystem\.exit\s*\((?!\s*[1-9])|\.halt\s*\("
    ),
    "reaches into other modules or frames": re.compile(
        r"\bsys\.(?:modules|_getframe|_current_frames|settrace|setprofile|meta_path|path_hooks|path\b)"
        r"|\bimportlib\b(?!\.(?:resources|metadata))|\b__import__\s*\(|\binspect\.(?:stack|currentframe|getouterframes)\b"
        r"|\bgc\.get_|\bctypes\b|\b__subclasses__\b|\bbuiltins\b|\brequire\.(?:cache|extensions)\b"
        r"|\bModule\._(?:load|extensions|resolveFilename)\b|\bglobalThis\b|\bglobal\.\w+\s*="
        r"|\bgo:linkname\b|\bunsafe\.Pointer\b|\b(?:import|extern)\s+\"C\"|\bprototype\.require\b"
        r"|\btraceback\.(?:extract_stack|walk_stack|format_stack|print_stack)\b|\bnew Error\([^)]*\)\.stack"
        r"|\bcaptureStackTrace\b|\bruntime\.Callers?\b|\bdebug\.(?:Stack|PrintStack)\b|\bBacktrace::"
    ),
    "detects the sandbox": re.compile(
        r"FLEET_|/proc/|\bbwrap\b|\bbubblewrap\b|\bgethostname\b|\bplatform\.node\b|\bos\.[hH]ostname\b|\buname\b"
        r"|[`(\"']hostname\b|[\"'`=]/repo\b|/home/worker|\bget(?:ppid|e?uid|user|login)\b|\bprocess\.(?:ppid|getuid)\b"
        r"|\bPYTEST_|\bGITHUB_ACTIONS\b|\b(?:JEST_WORKER_ID|NODE_TEST_CONTEXT|VITEST_\w+)\b"
        r"|\bargv\b[^\n]{0,60}(?:\.(?:ends|starts)(?:w|W)ith\(|\b(?:py)?test\b|\bjest\b|\bmocha\b)|\btest\b[^\n]{0,20}\bargv\b"
        r"|\bos\.Args\[0\][^\n]{0,40}\"|\bflag\.Lookup\(\s*\"test|\bcurrent_exe\b|\benv::var(?:_os)?\(\s*\"CARGO"
    ),
    "hides the code that it runs": re.compile(
        r"(?<![.\w])(?:exec|eval)\s*\(|\bnew Function\s*\(|\bmarshal\.loads\b|\bpickle\.loads\b"
        r"|(?<![.\w])getattr\s*\(\s*(?:os|sys|signal|posix|builtins)\b|(?<!new )\bFunction\s*\(\s*[\"'`]"
        r"|\.constructor\s*(?:\(\s*[\"'`]|\.\s*constructor\b)|\bimport\s*\(\s*[\"'][^\"']*[\"']\s*\+|\bcodecs\.decode\b"
        r"|\bb(?:ase)?64[._]?(?:b64)?decode|\bfromhex\b|\bfromCharCode\b|\batob\s*\(|\bvm\.run\w*\s*\("
    ),
    "prints output like a test runner": re.compile(
        r"\bRan \S+ tests?\b|\btest result: |\bTests:? +\S+ (?:passed|failed)\b|# pass\b|--- PASS\b|\btestcase\b|junit"
    ),
    "writes files that checks read": re.compile(
        rf"{_WRITES}[^\n]{{0,200}}{_READ}|{_READ}[^\n]{{0,200}}{_WRITES}|open\([^)]*{_READ}[^)]*,[^)]*[\"'][wax]\+?b?[\"']"
    ),
}
IN_CODE: Mapping[str, re.Pattern[str]] = {
    "compares equal to everything": re.compile(
        r"def __(?:eq|ne|bool|contains|lt|le|gt|ge|instancecheck)__\b.*(?:return (?:True|1)\b)"
        r"|\b__(?:eq|ne|contains)__\s*=|[\"']__(?:eq|ne|contains)__[\"']|\bSymbol\.toPrimitive\b|\basymmetricMatch\b"
        r"|\bvalueOf\s*\(\s*\)\s*\{"
    ),
    "reaches into the test runner": re.compile(
        r"\b_?pytest\b|\bunittest\b|\btesting\.(?:Main|Testing)\b|\bnode:test\b|\b(?:jest|vitest|mocha)\b"
        r"|\bexpect\.extend\b|\bassert\.\w+\s*=[^=]|\bcfg!\(test\)"
        r"|^\s*#\[cfg\(test\)\]\s+(?!(?:pub )?(?:mod|use)\b)\S|\bcfg\(not\(test\)\)"
        r"|[\"'](?:node:)?assert(?:/strict)?[\"']|\bmacro_rules!\s*(?:assert|debug_assert|panic)"
    ),
    "skips tests": re.compile(r"#\[\s*(?:ignore|should_panic)\b|\bcfg\((?:all|any)\(\s*test\b"),
}
PIECES = re.compile(r"\w[\"']\s*\+\s*[\"']\w")
"""A word that is put together in one line, from two texts, where one would do."""
EQUALITY = re.compile(r"\b(?:def __(?:eq|ne|contains)__|fn (?:eq|ne))\s*\(\s*&?\w+\s*,\s*\*?(\w+)")
BODY = 8  # lines below the head of a function that are looked at
MODULE_REPLACED = re.compile(r"=>\s*\S")
IN_TESTS: Mapping[str, re.Pattern[str]] = {
    "changes other code at import time": re.compile(
        r"^[A-Za-z_]\w*(?:\.\w+)+\s*=[^=]|^setattr\s*\(|^\s*(?:Object\.(?:assign|defineProperty)|Reflect\.set)\s*\("
        r"|\bprototype\.\w+\s*=[^=]|\bmodule\.exports\.\w+\s*=|\bfunc init\s*\(\s*\)"
    ),
    "changes the test runner": re.compile(
        r"\b_pytest\b|\bdef pytest_\w+|\bpytest_plugins\b|\bunittest\.(?:case|TestCase|main|loader)\.\w+\s*="
        r"|\bTestCase\.\w+\s*=|\bload_tests\b|\bfunc TestMain\b|\bassert\.\w+\s*=[^=]|\bexpect\.extend\b"
        r"|\bglobal\.(?:expect|it|test)\b"
    ),
}
DATA = re.compile(r".*\.(?:json|toml|ini|cfg|ya?ml|txt)", re.IGNORECASE)
PROSE = re.compile(r".*\.(?:md|rst|adoc|lock|csv|svg|po)", re.IGNORECASE)
REMOVED = re.compile(r"^\s*(?:#\[(?:tokio::)?test\]|assert(?:_eq|_ne)?!|>>> )")
EXECUTABLE = re.compile(r".*\.(?:so|pyd|dylib|dll|node|wasm|exe|jar|class|pyc|a|o|whl|zip|egg)")


def oddities(patch: str) -> tuple[tuple[str, str], ...]:
    """Return suspicious paths, each with a description of the problem."""
    cut = (("the change", "is too large to review"),) if CUT.search(patch) else ()
    return tuple(dict.fromkeys((*(found for part in _parts(patch) for found in _of_file(part)), *cut)))


def _parts(patch: str) -> Iterator[str]:
    yield from re.split(r"^diff --git ", patch, flags=re.MULTILINE)[1:]


def _of_file(part: str) -> Iterator[tuple[str, str]]:
    head = part.partition("\n")[0]
    if re.search(r"^Binary files .* differ$|^GIT binary patch$", part, re.MULTILINE):
        path = head.rpartition(" b/")[2]
        if EXECUTABLE.fullmatch(path):
            yield path, "is a binary program"
        return
    file = re.search(r"^\+\+\+ \"?b/(.*?)\"?$", part, re.MULTILINE)
    if file is None:
        return
    path, lines = file[1], part[file.end() :].splitlines()
    if PROSE.fullmatch(path):
        return
    patterns = {**ANYWHERE, **(IN_TESTS if is_test(path) else {} if DATA.fullmatch(path) else IN_CODE)}
    added = [line[1:LONGEST] for line in lines if line.startswith("+")]
    for line, below in pairwise((*added, "")):  # none if the patch only removes lines
        text = f"{line} {below.strip()}"
        yield from ((path, what) for what, pattern in patterns.items() if pattern.search(text))
    if not is_test(path) and not DATA.fullmatch(path):
        if any(PIECES.search(line) for line in added):
            yield path, "builds strings from pieces"
        if any(_is_equal_to_everything(added[at : at + BODY + 1]) for at in range(len(added))):
            yield path, "compares equal to everything"
    if path.rpartition("/")[2] == "go.mod" and any(map(MODULE_REPLACED.search, added)):
        yield path, "replaces a module"
    if not is_test(path) and any(line.startswith("-") and REMOVED.search(line[1:LONGEST]) for line in lines):
        yield path, "removes tests or assertions"


def _is_equal_to_everything(lines: Sequence[str]) -> bool:
    """Return whether these lines start a comparison that ignores its operand."""
    head = EQUALITY.search(lines[0])
    if head is None:
        return False
    rest = "\n".join((lines[0][head.end() :], *takewhile(str.strip, lines[1:])))
    return re.search(rf"\b{head[1]}\b", rest) is None


# ---- patches ---------------------------------------------------------------------------------------------------------
# A change as its reviewer sees it: each line of the diff with its number, so that a finding can name its place.
#
# The counts in the head of a hunk say where it ends, so no line of a file can pass for the head of another file.


LONGEST_LINE = 1_000  # characters of a line that a reviewer sees
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_HEAD = re.compile(r"^diff --git \"?a/(.*?)\"? \"?b/(.*?)\"?$")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class PatchLine:
    """One line of a diff."""

    sign: str
    """`+` for an added line, `-` for a removed line, a space for an unchanged line."""
    number: int
    """Line number in the changed file, or in the original file for a removed line."""
    text: str


@dataclass(slots=True)
class PatchFile:
    """One file of a diff."""

    path: str
    lines: list[PatchLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Other notes: mode, earlier name, binary content."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A diff whose lines can be named."""

    files: Mapping[str, PatchFile]
    is_whole: bool
    """Whether the patch is complete."""

    def line(self, file: str, number: int) -> PatchLine | None:
        """Return the line of the diff for a finding. Added and unchanged lines take precedence over removed ones."""
        lines = self.files[file].lines if file in self.files else ()
        there = [line for line in lines if line.number == number]
        return next((line for line in there if line.sign != "-"), there[0] if there else None)

    def lines(self, file: str, sign: str) -> frozenset[str]:
        """The texts of the lines that it adds to a file, or removes."""
        lines = self.files[file].lines if file in self.files else ()
        return frozenset(line.text for line in lines if line.sign == sign)

    @property
    def text(self) -> str:
        """All of it, for a reviewer."""
        return "\n".join(_shown(file) for file in self.files.values())


def parse_patch(patch: str) -> Patch:
    """Parse the output of `git diff`."""
    files = dict[str, PatchFile]()
    for file in _files(patch.removesuffix("\n").split("\n")):
        files[file.path] = file
    return Patch(files, is_whole=CUT.search(patch) is None)


def _files(lines: list[str]) -> Iterator[PatchFile]:
    file: PatchFile | None = None
    old = new = old_left = new_left = 0
    for line in lines:
        if old_left > 0 or new_left > 0:
            sign, text = line[:1] or " ", line[1:]
            if sign == "\\":
                continue
            if file is not None:
                file.lines.append(PatchLine(sign, old if sign == "-" else new, text))
            old, old_left = (old + 1, old_left - 1) if sign in {"-", " "} else (old, old_left)
            new, new_left = (new + 1, new_left - 1) if sign in {"+", " "} else (new, new_left)
        elif head := _HEAD.match(line):
            if file is not None:
                yield file
            file = PatchFile(head[2])
        elif hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[3])
            old_left = 1 if hunk[2] is None else int(hunk[2])
            new_left = 1 if hunk[4] is None else int(hunk[4])
        elif file is not None and line and not line.startswith(("index ", "--- ", "+++ ", "\\")):
            file.notes.append(line)
    if file is not None:
        yield file


def _shown(file: PatchFile) -> str:
    lines = [f"=== {_one_line(file.path)}", *(f"    ({_one_line(note)})" for note in file.notes)]
    before = 0
    for line in file.lines:
        if line.sign != "-" and line.number > before + 1:
            lines.append("    ...")
        before = line.number if line.sign != "-" else before
        lines.append(f"{line.number:6} {line.sign} {_one_line(line.text)}")
    return "\n".join(lines)


def _one_line(text: str) -> str:
    """Escape characters that would end a line or change its direction."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text[:LONGEST_LINE])
