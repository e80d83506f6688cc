"""How much of the program one small epic meets: the tutorial's, with three subtasks and one remedy of the planner.

The ceilings were measured and only go down. Whoever merges modules or removes a layer runs this test with `-rP`, which
prints the figures, and lowers them to what it prints. A figure that grew names what grew.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.runs.journal import Journal
from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage
from tests.worktrees.conftest import make_repository

TRACED = Path(__file__).with_name("traced.py")
TUTORIAL = Path(__file__).parents[2] / "examples" / "tutorial"

MOST_ACTIVE, DEEPEST, EVOLVED_PER_FACT = 151, 24, 1.05
"""Modules in which a function runs, frames of the program's own on one stack, calls of `evolve` for each fact.

Two modules more than were measured: whether a retry or a warning comes up depends on how fast the machine is.
"""

MOST_STATIONS = 12
OPTIONAL = re.compile(
    r"\b(features|nodes?|ray|forges?|tend|tending|rehearse|mcp|acp|traces|otlp|notif\w+|web|metrics|doctor|completion)\b"
)
"""Modules of features that the epic does not use have such a word in their name."""
ALWAYS = {
    "fleet.features.parts": "it imports what an entry of the table names",
}


@dataclass(frozen=True)
class Walk:
    """What the epic met."""

    calls: Mapping[str, int]
    """How often each function was called, as `module:name`."""
    deepest: tuple[str, ...]
    facts: int

    @property
    def active(self) -> frozenset[str]:
        return frozenset(name.partition(":")[0] for name in self.calls)

    @property
    def evolved(self) -> int:
        return sum(number for name, number in self.calls.items() if name.endswith(":evolve"))


@pytest.fixture
def walk(stage: Stage, model: Serve) -> Walk:
    files = [path for path in (TUTORIAL / "project").rglob("*") if path.suffix in {".py", ".txt", ".md"}]
    texts = {str(path.relative_to(TUTORIAL / "project")): path.read_text() for path in files}
    project, trace = make_repository(stage.room / "greeter", texts), stage.room / "trace.json"
    url = model(json.loads((TUTORIAL / "model.json").read_text()))
    arguments = ("run", str(TUTORIAL / "epic.md"), "--name", "walk", "--yes", "--plain", "--base-url", url)
    stage.run([sys.executable, str(TRACED), str(trace), *arguments], at=project).ended(0)
    seen = json.loads(trace.read_text())
    with Journal(stage.folder("walk").journal) as journal:
        return Walk(seen["calls"], tuple(seen["deepest"]), journal.length)


def test_one_epic_meets_no_more_of_the_program_than_it_did(walk: Walk) -> None:
    active, unused = sorted(walk.active), sorted(name for name in walk.active if _is_optional(name))
    figures = f"active {len(active)}, deepest {len(walk.deepest)}, evolve {walk.evolved} for {walk.facts} facts"
    sys.stdout.write(f"{figures}\n")
    assert unused == [], "enter what is optional only where it is configured"
    assert walk.evolved <= EVOLVED_PER_FACT * walk.facts, "whoever shows a run takes the states of its engine"
    assert len(walk.deepest) <= DEEPEST, "\n".join(walk.deepest)
    assert len(active) <= MOST_ACTIVE, "\n".join(active)


def test_the_tour_of_the_architecture_page_is_the_way_of_an_epic(walk: Walk) -> None:
    page = (Path(__file__).parents[2] / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| `(\w+)` in `([\w/]+)\.py` \|", page, re.MULTILINE)
    stations = [f"{path.replace('/', '.')}:{function}" for function, path in rows]
    assert 0 < len(stations) <= MOST_STATIONS
    assert [name for name in walk.calls if name in stations] == stations, "in the order of their first calls"


def test_an_optional_module_would_be_seen() -> None:
    names = ("fleet.features.nodes.serve", "fleet.features.audit", "fleet.read.node_view", "fleet.engine.loop")
    assert [_is_optional(name) for name in names] == [True, True, True, False]


def _is_optional(module: str) -> bool:
    return module not in ALWAYS and OPTIONAL.search(module.replace("_", " ")) is not None
