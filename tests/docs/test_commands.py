"""Every command of the documentation is typed here, page by page, and prints what the page shows."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import pytest
from _pytest.mark import ParameterSet
from anyio.from_thread import BlockingPortal

from fleet.app.input_files import read_data
from fleet.runs.run_folder import all_runs
from tests.docs.page import Command, File, Page, matches, parse_page, read_page
from tests.docs.shell import Shell
from tests.e2e.conftest import Serve, served
from tests.e2e.stage import Stage

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "examples" / "tutorial"
MODELS: Mapping[str, Path] = MappingProxyType(
    {
        "tutorial": TUTORIAL / "model.json",
        "asking": Path(__file__).parent / "asking.json",
        "recovering": Path(__file__).parent / "recovering.json",
        "reviewing": Path(__file__).parent / "reviewing.json",
        "steering": Path(__file__).parent / "steering.json",
        "critical": Path(__file__).parent / "critical.json",
    }
)
DOCUMENTS = sorted(
    (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/README.md"), *ROOT.glob("skills/**/*.md"))
)
PAGES = [read_page(path) for path in DOCUMENTS]
PLAYED = [page for page in PAGES if any(isinstance(step, Command) for step in page.steps)]
OWN_RUNS = {
    "docs/internals/evaluation.md",
    "docs/guides/external-workers.md",
    "docs/guides/rehearsing.md",
    "docs/internals/simulated-model.md",
}
IN_THE_TUTORIAL = {"docs/guides/audit.md", "docs/guides/report.md"}
"""Pages of a verb that the tutorial has, too."""


def name(page: Page) -> str:
    return str(page.path.relative_to(ROOT))


def marked(page: Page) -> ParameterSet:
    """`make test` plays the tutorial and pages that only look at a run, or at none, with other verbs."""
    long = "model" in dict(page.stage) or name(page) in OWN_RUNS | IN_THE_TUTORIAL
    return pytest.param(page, marks=pytest.mark.thorough if long else [])


@pytest.mark.parametrize("page", [marked(page) for page in PLAYED], ids=name)
def test_what_a_page_shows_is_so(page: Page, tmp_path: Path, model: Serve, after_the_tutorial: Stage) -> None:
    staged = dict(page.stage)
    stage = after_the_tutorial if staged.get("after") == "greeter" else make_stage(staged, tmp_path, model)
    steps: list[Command | File | None] = [*page.steps, None]
    with Shell(tmp_path, stage.environment, where=start_folder(staged, stage)) as shell:
        for step, following in pairwise(steps):
            match step:
                case File():
                    shell.write(step)
                case Command():
                    result = shell.run(step)
                    asked = isinstance(following, Command) and following.text == "echo $?"
                    report = f"{name(page)}:{step.line}: $ {step.text}\nexit code {result.code}\n{result.printed}"
                    assert result.code == 0 or asked, report
                    shown = "\n".join(step.shown)
                    assert not step.shown or matches(step.shown, result.printed), f"{report}\n--- shown:\n{shown}"
    assert [folder.run for folder in all_runs(stage.state) if folder.alive] == []


@pytest.fixture(scope="session")
def after_the_tutorial(tmp_path_factory: pytest.TempPathFactory, portal: BlockingPortal) -> Stage:
    """A project with a run that landed, for all the pages that only look at one."""
    with served(portal) as model:
        stage = make_stage({"project": "greeter", "model": "tutorial"}, tmp_path_factory.mktemp("after"), model)
        stage.fleet("run", str(TUTORIAL / "epic.md"), "--name", "greeter", "--yes", at=stage.room / "greeter").ended(0)
    return stage


def make_stage(staged: Mapping[str, str], room: Path, model: Serve) -> Stage:
    """What a page says is there: a project, a model, the environment. `fleet` is in the PATH, and little else."""
    bin_, home = room / "bin", room / "home"
    bin_.mkdir()
    home.mkdir()
    (bin_ / "fleet").symlink_to(Path(sys.executable).parent / "fleet")
    (home / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n")
    stage = Stage(room).with_(PATH=f"{bin_}:/usr/local/bin:/usr/bin:/bin", TZ="UTC")
    if "model" in staged:
        stage = stage.with_(FLEET_MODELS_BASE_URL=model(dict(read_data(MODELS[staged["model"]]))))
    if "project" in staged:
        copy_project(TUTORIAL / "project", room / staged["project"], stage)
    return stage.with_(**{key: value for key, value in staged.items() if key.isupper()})


def start_folder(staged: Mapping[str, str], stage: Stage) -> Path:
    """The reader's folder: in the project, in a checkout of this one, or at home."""
    if staged.get("at") == "checkout":
        return ROOT
    project = staged.get("project") or staged.get("after")
    return stage.room / project if project else stage.room / "home"


def copy_project(project: Path, to: Path, stage: Stage) -> None:
    shutil.copytree(project, to)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "A greeter"]):
        subprocess.run(["git", *command], cwd=to, env=stage.environment, check=True)


# ---- what is not run ------------------------------------------------------------------------------------------------


def test_commands_that_are_not_run_are_listed() -> None:
    """`pytest -rP` prints them, with the reason of each."""
    played = sum(isinstance(step, Command) for page in PAGES for step in page.steps)
    left = [(page, block) for page in PAGES if "reference" not in name(page) for block in page.not_run]
    for page, block in left:
        sys.stdout.write(f"not run: {name(page)}:{block.line}: {block.why}\n")
    sys.stdout.write(f"{played} commands are run on {len(PLAYED)} pages; {len(left)} blocks are not\n")
    assert played > LEAST


# ---- the test itself ------------------------------------------------------------------------------------------------

LEAST = 60
"""Commands that are run at least: fewer, and pages have lost them."""
SHOWN = """\
<!-- stage: project=greeter model=one.json FLEET_RUN_WORKERS=2 -->
<!-- file: a.txt -->
```text
hello
```

<!-- not run: it needs a key -->
```sh
fleet run
```
```console
$ cat \\
> a.txt
hello
$ true
```
```sh
fleet status
```
"""


def test_a_page_is_read_as_it_is_meant() -> None:
    page = parse_page(Path("page.md"), SHOWN)
    assert dict(page.stage) == {"project": "greeter", "model": "one.json", "FLEET_RUN_WORKERS": "2"}
    assert page.steps == (File(3, "a.txt", "hello\n"), Command(12, "cat \\\na.txt", ("hello",)), Command(15, "true"))
    assert [(block.why, block.text) for block in page.not_run] == [("it needs a key", "fleet run\n")]
    assert page.unmarked == (17,)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("merged  de18c35  2 attempts", "merged    0f3ab12    2 attempts"),
        ("cost $0.22, after 46 s", "cost $1,000.1, after 1.5 s"),
        ("first\n...\nlast", "first\nlast"),
        ("first\n...\nlast", "first\nsecond\nthird\nlast"),
        ("a ... z", "a and so on to z"),
        ("run add-french-5938", "run add-french-00ab"),
    ],
)
def test_what_differs_from_run_to_run_may_differ(shown: str, printed: str) -> None:
    assert matches(tuple(shown.splitlines()), printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("merged", "failed"),
        ("first", "first\nsecond"),
        ("first\nsecond", "first"),
        ("a.c", "abc"),
        ("2 attempts", "3 attempts"),
    ],
)
def test_what_is_not_so_is_seen(shown: str, printed: str) -> None:
    assert not matches(tuple(shown.splitlines()), printed)


def test_a_shell_keeps_its_place_and_its_variables(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with Shell(tmp_path, {"PATH": "/usr/bin:/bin"}, where=tmp_path) as shell:
        results = [shell.run(Command(1, text)) for text in ("cd there; export A=b", "echo $A; pwd; false", "echo $?")]
        shell.write(File(1, "c.txt", "8080"))
    assert [each.code for each in results] == [0, 1, 0]
    assert results[1].printed == f"b\n{tmp_path / 'there'}\n"
    assert results[2].printed == "1\n"
    assert (tmp_path / "there" / "c.txt").read_text() == shell.ports["8080"]
