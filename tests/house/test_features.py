"""A feature is deleted by deleting its folder and its entry in the table. The rest type-checks and works."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fleet.config.layer import WHOLE
from fleet.config.load import defaults_file
from fleet.config.toml import read_toml
from fleet.features.parts import BESIDE
from fleet.features.table import FEATURES

ROOT = Path(__file__).parents[2]
TABLE = "fleet/features/table.py"
PACKAGES = ("fleet", "agents", "worktrees", "dashboards")
KEPT = (*PACKAGES, "tests", "scripts", "examples", "docs/reference/recovery.md", "pyproject.toml", "config.toml")
KERNEL = ("tests/fleet/core", "tests/fleet/engine", "tests/fleet/config", "tests/fleet/read")
QUICK = "audit"
"""The feature that `make test` deletes."""


def home(feature: str) -> str:
    """The folder of a feature: of its name below `fleet/features`, or where its verb is."""
    places = [verb.place for verbs in FEATURES[feature].verbs.values() for verb in verbs.values()]
    first = places[0].split(".") if places else [""]
    return "/".join(first[:2]) if first[0] in BESIDE else f"fleet/features/{feature}"


class Copy:
    """The program without some of its features."""

    def __init__(self, at: Path, without: Sequence[str]) -> None:
        self.at = at
        listed = subprocess.run(["git", "ls-files", "-z", *KEPT], cwd=ROOT, capture_output=True, check=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (at / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, at / name)
        for feature in without:
            for folder in (home(feature), f"tests/{home(feature)}"):
                shutil.rmtree(at / folder, ignore_errors=True)
        table = at / TABLE
        table.write_text(table_without(table.read_text(encoding="utf-8"), without), encoding="utf-8")

    def run(self, *arguments: str, at: Path | None = None) -> str:
        """Run Python in the copy, and only on it; returns what it printed."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        environ = {**kept, "PYTHONPATH": str(self.at), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=at or self.at, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout[-4_000:]}{done.stderr[-4_000:]}"
        return done.stdout

    def checks_types(self, cache: Path) -> None:
        self.run("-m", "mypy", "--strict", "--explicit-package-bases", "--cache-dir", str(cache), *PACKAGES)

    def lands_the_tutorial(self, room: Path) -> None:
        """With the simulated model of the tutorial."""
        tutorial, project = self.at / "examples" / "tutorial", room / "greeter"
        shutil.copytree(tutorial / "project", project)
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-qm", "start")):
            subprocess.run(["git", *words], cwd=project, check=True)
        state = ("--config", str(room / "fleet.toml"))
        (room / "fleet.toml").write_text(f'[state]\ndir = "{room / "state"}"\n', encoding="utf-8")
        with self.model(tutorial / "model.json") as url:
            epic = str(tutorial / "epic.md")
            printed = self.run("-m", "fleet", "run", epic, "--yes", "--plain", "--base-url", url, *state, at=project)
        assert "landed" in printed.splitlines()[-1] or "3 of 3" in printed, printed[-2_000:]

    def model(self, script: Path) -> "Model":
        return Model(self.at, script)


class Model:
    """The simulated model of the copy; where that is deleted, the one of this tree."""

    def __init__(self, at: Path, script: Path) -> None:
        self.at, self.script = at if (at / "agents" / "simulated").exists() else ROOT, script

    def __enter__(self) -> str:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fleet", "simulate", str(self.script), "--port", "0"],
            cwd=self.at,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self.at), "HOME": str(self.at)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                return found[0]
        raise AssertionError("the simulated model did not start")

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.terminate()


def table_without(source: str, features: Sequence[str]) -> str:
    """The table without the entries of some features."""
    lines = source.splitlines(keepends=True)
    for name, first, last in reversed(list(_entries(source))):
        if name in features:
            del lines[first - 1 : last]
    return "".join(lines)


def _entries(source: str) -> Iterator[tuple[str, int, int]]:
    """The name of each entry, and its lines."""
    for node in ast.parse(source).body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.value, ast.Dict)
            and ast.unparse(node.target) == "FEATURES"
        ):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                assert isinstance(key, ast.Constant)
                assert value.end_lineno is not None
                yield str(key.value), key.lineno, value.end_lineno


def test_every_feature_is_a_folder_and_every_folder_a_feature() -> None:
    folders = {f"fleet/features/{path.parent.name}" for path in (ROOT / "fleet" / "features").glob("*/__init__.py")}
    homes = {home(feature) for feature in FEATURES}
    assert folders == {each for each in homes if each.startswith("fleet/")}
    assert all((ROOT / each / "__init__.py").exists() for each in homes)


def test_every_table_of_the_defaults_is_a_section() -> None:
    assert set(read_toml(defaults_file())) <= set(WHOLE.model_fields)


def test_an_entry_is_taken_out_whole() -> None:
    source = 'FEATURES: dict[str, int] = {\n    "a": one(\n        1\n    ),\n    "b": 2,\n}\n'
    assert table_without(source, ["a"]) == 'FEATURES: dict[str, int] = {\n    "b": 2,\n}\n'
    assert table_without(source, ["a", "b"]) == "FEATURES: dict[str, int] = {\n}\n"


@pytest.mark.parametrize(
    "feature", [pytest.param(name, marks=[] if name == QUICK else pytest.mark.thorough) for name in FEATURES]
)
def test_the_program_lands_an_epic_without_a_feature(feature: str, tmp_path: Path) -> None:
    copy = Copy(tmp_path / "fleet", [feature])
    assert feature not in copy.run("-c", "from fleet.features.table import FEATURES; print(*FEATURES)").split()
    copy.run("-m", "fleet", "--help")
    copy.lands_the_tutorial(tmp_path)


VERBS = '''"""The verb."""

import typer


def hello() -> None:
    """Say hello."""
    typer.echo("hello")
'''
TOOL = '''"""`hello`."""

from agents.tools.tool import Arguments, ReadOnlyTool
from fleet.ports.agents import PlannerRepository


class Hello(ReadOnlyTool[Arguments]):
    name = "hello"
    description = "Says hello."
    takes = Arguments

    async def look(self, repository: PlannerRepository, arguments: Arguments) -> str:
        return f"hello, {len(await repository.list_files(None))} files"
'''
FIGURE = '    Figure("hello", "count", "How often it said hello.", lambda run: 41 + 1),\n'
FACT = '''

class Greeted(TimedFact):
    """Someone said hello."""

    kind: Literal["greeted"] = "greeted"
    by: str
'''
FORGE = """    ForgeKind(
        name="Hello",
        prefix="he",
        host="hello.example",
        program="he",
        install="install it from https://hello.example",
        client="forge.hello:Hello",
        form="OWNER/REPO",
        depths=range(2, 3),
        issue_pages=("/-/hellos/",),
        pull_pages=("/-/pulls/",),
        pull_sign="#",
    ),
"""
CLIENT = '''"""The client of a forge that is only named."""

from dataclasses import dataclass

from fleet.features.forge.program import Program


@dataclass(frozen=True, slots=True)
class Hello:
    """A repository there."""

    program: Program
'''
BELL = '    "hello": CommandChannel,\n'
ENTRY = '    "hello": Feature(verbs={"Look": {"hello": Verb("hello.verbs:hello", "machine", "Say hello.")}}),\n'
RECIPES: dict[str, dict[str, dict[str, str]]] = {
    "a feature": {
        "fleet/features/hello/__init__.py": {"": '"""Says hello."""\n'},
        "fleet/features/hello/verbs.py": {"": VERBS},
        TABLE: {"FEATURES: dict[str, Feature] = {\n": ENTRY},
    },
    "a key of the program itself": {
        "fleet/config/schema.py": {"class LandingSection(Section):\n": "    hello: int\n"},
        "config.toml": {"[landing]\n": "# How often to say hello.\nhello = 3\n"},
    },
    "a forge": {
        "fleet/core/base/forges.py": {"FORGES = (\n": FORGE},
        "fleet/features/forge/hello.py": {"": CLIENT},
    },
    "a notification channel": {
        "fleet/features/notify/channels.py": {
            "KINDS: dict[str, type[Channel]] = {\n": BELL,
            "    kind: Literal[\n": '        "hello",\n',
        },
    },
    "a tool of the planner": {
        "agents/tools/hello.py": {"": TOOL},
        "agents/tools/registry.py": {
            "from agents.tools.edit import Bash, EditTool\n": "from agents.tools.hello import Hello\n",
            "PLANNER_TOOLS: dict[str, type[ReadOnlyTool[Any]]] = {\n": '    "hello": Hello,\n',
        },
    },
    "a class of failures": {
        "fleet/core/facts/fact_parts.py": {'    "too_complex",\n': '    "hello",\n'},
        "fleet/core/policy/remedies.py": {
            "    for rung in (\n": '        RemedyRung("hello", True, "planner", "hello"),\n'
        },
        "docs/reference/recovery.md": {"|---|---|---|---|\n": "| `hello` | yes | planner | hello |\n"},
    },
    "a fact": {
        "fleet/core/facts/plan_facts.py": {
            '    """Whether the rules of `[review]` approved, not a user."""\n': FACT,
            "\nPlanFact = ": "Greeted | ",
        },
        "fleet/core/history/plan_history.py": {
            "fact: f.PlanFact) -> RunState:\n    match fact:\n": (
                '        case f.Greeted():\n            return replace(state, warnings=("hello",))\n'
            )
        },
        "dashboards/text/event_text.py": {"    # the plan\n": '    f.Greeted: lambda _, it: f"{it.by} says hello",\n'},
    },
    "a figure in the status": {"fleet/read/figures.py": {"FIGURES = (\n": FIGURE}},
}
"""By recipe of the architecture page: for each file, the text added after each line; after nothing: the whole file."""
OPENED = (
    "from fleet.features.forge.forge import issue_reference; from fleet.features.forge.program import open_forge; "
    "place = issue_reference('he:acme/shop#1').place; print(type(open_forge(place, {})).__name__, place)"
)
RUNG = (
    "from fleet.features.notify.channels import KINDS, NotifyChannel; "
    "keys = NotifyChannel(kind='hello', command='ring it'); print(KINDS[keys.kind].of(keys, {}).words)"
)
ASKED = "from agents.tools.registry import PLANNER_TOOLS; print(PLANNER_TOOLS['hello'].description)"
SHOWN = """
from dashboards.metrics.gauges import RunsSnapshot, samples
from dashboards.metrics.counters import Tally
from fleet.read.follow import FollowedRun
from dashboards.terminal.base_screen import header_lines
from dashboards.text.tables import status_lines
from dashboards.rendering import environment
from dashboards.web.site import HERE
from dashboards.web.run_page import numbers_of
from fleet.read.base_view import dump_view
from fleet.read.run import RunSnapshot
from tests.dashboards.feeds import MemoryFeed
from tests.fleet.core.story import Story, plan_of

story = Story(plan=plan_of("api"))
run = FollowedRun(MemoryFeed(story.facts), lambda: story.now)
run.catch_up(9)
it = RunSnapshot(story.state, story.now, alive=True)
print(dump_view(it.status)["hello"])
print(*(line for line in status_lines(it.status) if "hello" in line))
print("hello 42" in "".join(text for line in header_lines(run, it, 200) for text, _ in line))
numbers = environment(HERE / "templates").get_template("parts/numbers.html")
print("<dt>Hello</dt><dd><b>42</b>" in numbers.render(numbers_of(run, it)))
print(*(value for name, _, value in samples(RunsSnapshot(story.now, [it], {}), Tally()) if name == "fleet_run_hello"))
"""
HAPPENED = """
from dashboards.text.event_text import event_lines
from fleet.core.facts.facts import FACT
from fleet.read.run import just_after
from tests.fleet.core.story import Story, plan_of

story, fact = Story(plan=plan_of("api")), FACT.validate_python({"kind": "greeted", "at": 1, "by": "ann"})
story.happens(fact)
print(*event_lines(just_after(story.state), fact), *story.state.warnings)
"""
LADDER = "from fleet.core.policy.remedies import LADDER; print(LADDER['hello'].what)"
SEEN: dict[str, tuple[tuple[str, ...], str]] = {
    "a feature": (("-m", "fleet", "hello"), "hello\n"),
    "a key of the program itself": (("-m", "fleet", "config", "get", "landing.hello"), "3\n"),
    "a forge": (("-c", OPENED), "Hello he:acme/shop\n"),
    "a notification channel": (("-c", RUNG), "('ring', 'it')\n"),
    "a tool of the planner": (("-c", ASKED), "Says hello.\n"),
    "a class of failures": (("-c", LADDER), "hello\n"),
    "a fact": (("-c", HAPPENED), "  0:01  ann says hello hello\n"),
    "a figure in the status": (("-c", SHOWN), "42\n  hello      42\nTrue\nTrue\n42\n"),
}
"""What shows that it works."""


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_touches_the_files_it_names_and_works(recipe: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| {recipe} ✔ |"))
    named = [name.replace("NAME", "hello") for name in re.findall(r"`([^`]+)`", row)]
    copy = Copy(tmp_path / "fleet", [])
    for name, additions in RECIPES[recipe].items():
        path = copy.at / name
        path.parent.mkdir(exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for after, added in additions.items():
            assert text.count(after) == 1
            text = text.replace(after, after + added)
        path.write_text(text, encoding="utf-8")
        assert any(name == each or name.startswith(f"{each}/") for each in named), f"{name} is in no cell of {row}"
    assert all(any(name.startswith(each) for name in RECIPES[recipe]) for each in named)
    arguments, printed = SEEN[recipe]
    assert copy.run(*arguments) == printed


@pytest.mark.thorough
def test_types_are_right_without_any_one_feature(tmp_path: Path) -> None:
    for feature in FEATURES:
        Copy(tmp_path / feature, [feature]).checks_types(tmp_path / "cache")


@pytest.mark.thorough
def test_types_and_the_tests_of_the_kernel_pass_without_all_features(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "fleet", list(FEATURES))
    copy.checks_types(tmp_path / "cache")
    copy.lands_the_tutorial(tmp_path)
    copy.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "2", *KERNEL)
