"""Documents say what is so: keys, commands, exit codes, tables and links are compared with the code."""

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
import typer.main

from agents.simulated.behaviours import Fault, Until, Work
from agents.simulated.script import Script, parse_script
from agents.tools.registry import PLANNER_TOOLS
from agents.workers.registry import WORKERS
from fleet.cli.common import EXIT
from fleet.cli.entry import BugError, InterruptedByUserError, app
from fleet.config.load import defaults_file
from fleet.core.plans.plan import FailureAction, Plan
from fleet.core.plans.revision import Revision, SubtaskStatuses, revise_plan
from fleet.core.policy.remedies import LADDER
from fleet.core.state.status import Status
from fleet.errors import FleetError, UsageError
from fleet.read.policy_document import ACTIONS
from scripts.reference import configuration, facts, json_views, plan_file
from scripts.reference.__main__ import PAGES
from scripts.reference.page import replace_marked
from scripts.reference.source import class_doc, field_docs
from tests.docs.page import parse_page
from tests.docs.verbs import FENCED, INLINE, Shown, commands_in, group, problem_with
from tests.house.conftest import nodes

LONGEST_README = 150
MOST_WORDS = 30_000
"""Of README and the pages for users, without the reference."""
COMMAND_LINE = "docs/reference/command-line.md"
DECISION_PARTS = ("Context", "Decision", "Consequences", "Considered")
PRODUCT = ("fleet/", "agents/", "worktrees/", "dashboards/")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FILE = re.compile(r"(?:fleet|agents|worktrees|dashboards|tests|docs|examples|scripts)/[\w./-]*(?:\.\w+|/)")
_RECORD = re.compile(r"decisions/(?:archive/)?\d{4}-")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def documents(files: Mapping[str, str]) -> Mapping[str, str]:
    return {
        path: text for path, text in files.items() if path.endswith(".md") and not path.startswith("agents/prompts/")
    }


# ---- reference ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_the_reference_says_what_the_code_says(path: str, documents: Mapping[str, str]) -> None:
    assert documents[path] == replace_marked(documents[path], PAGES[path]()), f"{path} is out of date: make docs"


def test_every_key_of_the_configuration_is_explained() -> None:
    documented = configuration.read(defaults_file().read_text(encoding="utf-8"))
    for section, model in configuration.models().items():
        tables = {
            key
            for key in model.model_fields
            if any(name.startswith(f'{section}.{key}."') for name in configuration.models())
        }
        unsaid = [key for key in model.model_fields if key not in tables and not documented[section].keys.get(key)]
        assert unsaid == [], f"config.toml says nothing above these keys of [{section}]"


def test_every_fact_says_what_happened_and_what_its_fields_mean() -> None:
    assert [kind.__name__ for kind in facts.shapes() if not class_doc(kind)] == []
    assert [f"{kind.__name__}: {row[0]}" for kind in facts.shapes() for row in facts.rows(kind) if not row[3]] == []


def test_every_key_of_a_view_is_explained() -> None:
    assert [view.__name__ for view in json_views.shapes() if not class_doc(view)] == []
    assert [f"{v.__name__}: {row[0]}" for v in json_views.shapes() for row in json_views.rows(v) if not row[2]] == []


def test_every_key_of_a_plan_is_explained() -> None:
    unsaid = [
        f"{kind.__name__}.{key}"
        for kind in plan_file.HEADINGS
        for key, field in kind.model_fields.items()
        if not field.description and key not in field_docs(kind)
    ]
    assert unsaid == []


# ---- commands -------------------------------------------------------------------------------------------------------


def test_every_command_that_is_shown_exists_with_its_options(documents: Mapping[str, str]) -> None:
    shown = [command for path, text in documents.items() for command in commands_in(path, text)]
    assert len(shown) > 50
    assert [f"{command}: {problem}" for command in shown if (problem := problem_with(command))] == []


def test_the_readme_shows_the_way_from_install_to_result(documents: Mapping[str, str]) -> None:
    """In this order, on one screen after another; all verbs are in the reference."""
    text = documents["README.md"]
    shown = [
        " ".join(command.words[:2])
        for block in (*parse_page(Path("README.md"), text).not_run,)
        for command in commands_in("README.md", f"<!-- not run: shown -->\n```sh\n{block.text}```\n")
    ]
    assert shown == ["fleet doctor", "fleet init", "fleet run", "fleet merge", "make demo", "make test"]
    assert text.index("uv tool install .") < text.index("fleet doctor")
    assert len(text.splitlines()) <= LONGEST_README


def test_every_verb_has_its_part_in_the_reference(documents: Mapping[str, str]) -> None:
    verbs = set(group(typer.main.get_command(app)))
    assert verbs - set(re.findall(r"^### fleet ([\w-]+)", documents[COMMAND_LINE], re.MULTILINE)) == set()


def test_every_block_of_shell_is_run_or_says_why_not(documents: Mapping[str, str]) -> None:
    """Commands stand as ```console, and tests/docs/page.py says how; or `<!-- not run: WHY -->` stands above them."""
    pages = {path: parse_page(Path(path), text) for path, text in documents.items()}
    assert [f"{path}:{line}" for path, page in pages.items() for line in page.unmarked] == []


def test_a_wrong_command_would_be_seen() -> None:
    assert problem_with(Shown("", ("fleet", "rnu", "EPIC"))) == "there is no verb rnu"
    assert problem_with(Shown("", ("fleet", "config", "shwo"))) == "there is no verb shwo"
    assert problem_with(Shown("", ("fleet", "run", "--wrokers", "3"))) == "there is no option --wrokers"
    assert problem_with(Shown("", ("fleet", "retry", "x", "-g", "TEXT"))) is None
    assert problem_with(Shown("", ("make", "dmeo"))) == "there is no target dmeo"
    text = 'run `fleet run "a b" --yes  # now` or\n```console\n$ true && fleet x &\n```\n'
    assert [str(shown) for shown in commands_in("a.md", text)] == ["a.md: fleet x", "a.md: fleet run a b --yes"]


def test_the_exit_codes_of_the_reference_are_those_of_the_code(documents: Mapping[str, str]) -> None:
    part = documents[COMMAND_LINE].partition("| exit code |")[2].partition("\n\n")[0]
    documented = {int(row[0]) for row in _rows(part) if row[0].isdigit()}
    codes = {code for ending, code in EXIT.items() if ending is not None}
    assert documented == codes | {
        UsageError.exit_code,
        FleetError.exit_code,
        InterruptedByUserError.exit_code,
        BugError.exit_code,
    }


# ---- links ----------------------------------------------------------------------------------------------------------


def test_every_relative_link_leads_somewhere(documents: Mapping[str, str], root: Path) -> None:
    wrong = [
        f"{path}: {link}"
        for path, text in documents.items()
        for link in _LINK.findall(FENCED.sub("", text))
        if "://" not in link and not _leads(root, path, link)
    ]
    assert wrong == []


def test_every_document_can_be_reached_from_the_readme(documents: Mapping[str, str], root: Path) -> None:
    reached, pending = set[str](), ["README.md"]
    while pending:
        path = pending.pop()
        if path not in reached and path in documents:
            reached.add(path)
            links = (link.partition("#")[0] for link in _LINK.findall(documents[path]) if "://" not in link)
            pending += (str((root / path).parent.joinpath(link).resolve().relative_to(root)) for link in links if link)
    assert {path for path in documents if path.startswith("docs/")} - reached == set()


def test_no_page_for_users_links_to_a_decision_record(documents: Mapping[str, str]) -> None:
    contributors = ("docs/internals/", "docs/decisions/", "CONTRIBUTING.md", "AGENTS.md")
    pages = {path: text for path, text in documents.items() if not path.startswith(contributors)}
    linked = [f"{path}: {link}" for path, text in pages.items() for link in _LINK.findall(text) if _RECORD.search(link)]
    assert len(pages) > 40
    assert linked == []


def test_pages_for_users_stay_short(documents: Mapping[str, str]) -> None:
    pages = [path for path in documents if re.fullmatch(r"README\.md|docs/(guides/)?[^/]+\.md", path)]
    assert len(pages) > 30
    assert sum(len(documents[path].split()) for path in pages) <= MOST_WORDS


def _leads(root: Path, path: str, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (root / path).parent / name if name else root / path
    if not target.exists():
        return False
    if not anchor:
        return True
    headings = _HEADING.findall(target.read_text(encoding="utf-8"))
    return anchor in {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


# ---- the map of the architecture page -------------------------------------------------------------------------------


def test_every_folder_of_the_product_has_its_row(documents: Mapping[str, str], files: Mapping[str, str]) -> None:
    """`docs/internals/architecture.md` has one row per folder, and names only files that exist in it."""
    rows = _room_rows(documents)
    folders = {path.rpartition("/")[0] for path in files if path.startswith(PRODUCT)}
    assert {folder for folder, _ in rows} == folders
    assert len(rows) == len(folders), "a folder has two rows"
    missing = [
        f"{folder}/{name}"
        for folder, cell in rows
        for name in INLINE.findall(cell)
        if name.endswith(".py") and f"{folder}/{name}" not in files
    ]
    assert missing == []


def _room_rows(documents: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each folder of the four packages that the page names in a first column, and what is said to live there."""
    page = documents["docs/internals/architecture.md"]
    part = page.partition("## The rooms")[2].partition("### Beside the product")[0]
    return [(row[0].strip("`/"), row[1]) for row in _rows(part)]


# ---- tables and examples --------------------------------------------------------------------------------------------


def test_the_ladder_of_the_document_is_the_ladder_of_the_code(documents: Mapping[str, str]) -> None:
    part = documents["docs/reference/recovery.md"].partition("## The ladder")[2].partition("\n## ")[0]
    documented = [(row[0].strip("`"), row[1] == "yes", row[2], row[3]) for row in _rows(part)]
    assert documented == [(kind, rung.counts, rung.first, rung.what) for kind, rung in LADDER.items()]


def test_what_a_subtask_may_settle_beforehand_is_what_the_code_does(documents: Mapping[str, str]) -> None:
    part = documents["docs/reference/recovery.md"].partition("## What the planner may choose")[2].partition("\n## ")[0]
    assert {row[0].strip("`"): row[1] for row in _rows(part)} == ACTIONS
    assert set(ACTIONS) == set(get_args(FailureAction))


def test_the_glossary_names_every_status(documents: Mapping[str, str]) -> None:
    entry = next(part for part in documents["docs/glossary.md"].split("\n- ") if part.startswith("**status**"))
    assert set(INLINE.findall(entry)) - {"Status"} == set(get_args(Status))


def test_each_word_of_the_glossary_has_one_entry_of_one_sentence(documents: Mapping[str, str]) -> None:
    entries = re.findall(r"^- \*\*(.*?)\*\*: (.*?)(?=\n- |\n\n|\n\Z)", _glossary(documents), re.MULTILINE | re.DOTALL)
    words = [word for word, _ in entries]
    assert len(words) > 100
    assert sorted(words) == sorted(set(words))
    assert [word for word, meaning in entries if not re.fullmatch(r"[^.]*(\.\w[^.]*)*\.", meaning)] == []


def test_types_that_the_glossary_names_exist(documents: Mapping[str, str], product: Mapping[str, ast.Module]) -> None:
    defined = {node.name for tree in product.values() for node in nodes(tree, ast.ClassDef)}
    defined |= {
        target.id
        for tree in product.values()
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert set(re.findall(r"\(`([A-Z]\w+)`\)", _glossary(documents))) - defined == set()


def _glossary(documents: Mapping[str, str]) -> str:
    """The words that users see, and those of the code."""
    return documents["docs/glossary.md"] + "\n" + documents["docs/internals/terms.md"]


def test_decisions_are_numbered_without_a_gap_and_all_listed(documents: Mapping[str, str]) -> None:
    folder = "docs/decisions/"
    paths = (path.removeprefix(folder) for path in documents if path.startswith(folder) and "README" not in path)
    records = sorted(paths, key=lambda path: ("/" in path, path))
    numbers = sorted(int(Path(name).name[:4]) for name in records)
    missing = [number for number in range(1, numbers[-1] + 1) if number not in numbers]
    assert (missing, len(set(numbers))) == ([], len(numbers))
    assert _LINK.findall(documents[f"{folder}README.md"]) == records
    for name in records:
        text = documents[folder + name]
        assert text.startswith(f"# {Path(name).name[:4]}. "), name
        assert [part for part in DECISION_PARTS if f"\n## {part}\n" not in text] == [], name


def test_each_decision_has_a_status_and_the_index_says_the_same(documents: Mapping[str, str]) -> None:
    folder = "docs/decisions/"
    index = {row[0]: row[1] for row in _rows(documents[f"{folder}README.md"])}
    for path in sorted(path for path in documents if path.startswith(folder) and "README" not in path):
        record = re.match(r"# (?P<title>.*)\n\nStatus: (?P<status>(?:accepted|superseded by)\b.*)\.\n", documents[path])
        assert record is not None, f"{path}: after the title comes `Status: accepted.` or `Status: superseded by …`"
        status = _LINK.sub(lambda link: link[0][1:5], record["status"])
        assert index[f"[{record['title']}]({path.removeprefix(folder)})"] == status, path
        assert ("/archive/" in path) == status.startswith("superseded"), path


def test_the_script_that_is_shown_can_be_played(documents: Mapping[str, str]) -> None:
    path = "docs/internals/simulated-model.md"
    (example,) = (match[3] for match in FENCED.finditer(documents[path]) if match[2] == "json")
    script = parse_script(json.loads(example), source=path)
    planned = revise_plan(Plan(), _all_added(script), SubtaskStatuses())
    assert isinstance(planned, Plan), planned
    unscripted = [id_ for id_ in planned.ids if script.worker(id_) not in script.workers.values()]
    assert unscripted == []


def test_every_behaviour_of_the_simulated_model_is_in_its_table(documents: Mapping[str, str]) -> None:
    shapes = (*get_args(Work), *get_args(Fault), Until)
    part = documents["docs/internals/simulated-model.md"].partition("| `do` |")[2]
    documented = [name for row in _rows(part) for name in INLINE.findall(row[0])]
    assert set(documented) == {shape.model_fields["do"].default for shape in shapes}


def test_every_key_of_a_script_stands_in_the_document(documents: Mapping[str, str]) -> None:
    part = documents["docs/internals/simulated-model.md"].partition("## Keys")[2].partition("\n**")[0]
    documented = {name for row in _rows(part) for name in INLINE.findall(row[0])}
    assert documented == Script.model_fields.keys()


def test_every_file_that_a_document_names_is_there(documents: Mapping[str, str], root: Path) -> None:
    made = {"agents/prompts/documenter.md", "agents/tools/biggest_files.py"}  # by the walk-throughs
    missing = {
        name
        for text in documents.values()
        for name in INLINE.findall(FENCED.sub("", text))
        if _FILE.fullmatch(name) and not (root / name).exists()
    }
    assert missing == made


def test_the_walk_throughs_use_names_that_are_free() -> None:
    assert "documenter" not in WORKERS
    assert "biggest_files" not in PLANNER_TOOLS


def _all_added(script: Script) -> Revision:
    """What the script's planner adds in all."""
    added = tuple(new for step in script.planner.steps for new in step.revision.add)
    return Revision(assessment="everything", add=added)


def _rows(text: str) -> list[list[str]]:
    """The rows of the tables in `text`, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = {index for index, row in enumerate(rows) if all(re.fullmatch(r":?-+:?", cell) for cell in row)}
    return [row for index, row in enumerate(rows) if index not in rules and index + 1 not in rules]


def test_every_section_of_a_guide_has_an_example(documents: Mapping[str, str]) -> None:
    bare = [
        f"{path}: {section.partition(chr(10))[0]}"
        for path, text in documents.items()
        if path.startswith("docs/guides/")
        for section in FENCED.sub("FENCED", text).split("\n## ")[1:]
        if "FENCED" not in section and "or example" not in section
    ]
    assert bare == []
