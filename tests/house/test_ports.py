"""A protocol of the ports is a seam only if it has two implementations, or if one suite holds all of them to it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 16
PORTS: dict[str, tuple[str, ...]] = {
    "AttemptCalls": ("agents/remote.py:RelayCalls", "agents/remote.py:NoCalls"),
    "Clock": ("tests/contract/test_memory.py",),
    "Commits": ("worktrees/leases/run_worktrees.py:RunWorktrees", "worktrees/leases/run_worktrees.py:PastWork"),
    "Integrator": ("tests/contract/test_worktrees.py",),
    "Journal": ("tests/contract/test_memory.py",),
    "Lease": ("tests/contract/test_worktrees.py",),
    "Meter": ("agents/conversation/guards.py:AttemptBudget", "fleet/engine/reservations.py:CallMeter"),
    "Node": ("fleet/engine/this_machine.py:ThisMachine", "fleet/features/nodes/placement.py:Placement"),
    "Planner": ("tests/contract/test_planners.py",),
    "Recorder": ("fleet/engine/loop.py:Engine", "fleet/features/rehearse/past_tasks.py:_NoRun"),
    "Reply": ("tests/fleet/features/nodes/test_calls.py",),
    "PlannerRepository": ("tests/contract/test_repositories.py",),
    "Worker": ("tests/contract/test_workers.py",),
    "Workspace": ("tests/contract/test_workspaces.py",),
    "Worktrees": ("tests/contract/test_worktrees.py",),
}
"""By protocol, the suite that all its implementations pass, or two classes of the product that implement it."""


def classes_in(path: Path) -> list[ast.ClassDef]:
    return [each for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(each, ast.ClassDef)]


def is_protocol(cls: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in cls.bases)


FILES = (ROOT / "fleet" / "ports").glob("*.py")
PROTOCOLS = {each.name: each for path in FILES for each in classes_in(path) if is_protocol(each)}


def names_in(cls: ast.ClassDef) -> set[str]:
    """The methods, fields and class variables, and what its methods set."""
    names = {each.name for each in cls.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    for each in ast.walk(cls):
        if isinstance(each, ast.Attribute | ast.Name) and isinstance(each.ctx, ast.Store):
            names.add(each.attr if isinstance(each, ast.Attribute) else each.id)
    return names


def test_every_protocol_of_the_ports_is_listed_and_they_are_few() -> None:
    assert set(PORTS) == set(PROTOCOLS)
    assert len(PORTS) <= MOST


@pytest.mark.parametrize("name", PORTS)
def test_a_protocol_has_a_suite_or_two_implementations(name: str) -> None:
    proofs = PORTS[name]
    if len(proofs) == 1:
        suite = (ROOT / proofs[0]).read_text(encoding="utf-8")
        assert name in suite or name in (ROOT / proofs[0]).with_name("conftest.py").read_text(encoding="utf-8")
        assert "def test_" in suite
        return
    for place in proofs:
        path, _, wanted = place.partition(":")
        [found] = [each for each in classes_in(ROOT / path) if each.name == wanted]
        assert names_in(PROTOCOLS[name]) <= names_in(found), place
