"""Ways to pass a check without doing the work, by runner, and honest work that must not be taken for one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Files = Mapping[str, str | None]
"""Files that a worker writes. None removes a file."""
REVIEWED = "review"
"""Cheats of the first review of verdicts, and those added since."""


@dataclass(frozen=True, slots=True)
class Case:
    """One change and the checks that judge it."""

    name: str
    files: Files
    touches: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    """Criteria of the case. Empty: those of the runner."""
    gate: str = ""
    base: Files = field(default_factory=dict)
    """Files of the base in addition to the project's."""
    guards: tuple[str, ...] = ()
    """Criteria beside the checks that pass on the base, too."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic links that a worker creates, with their targets."""
    honest: bool = False
    reviewed: bool = False
    """Whether the first review of verdicts saw it land."""


@dataclass(frozen=True, slots=True)
class Runner:
    """A small project with a bug, the check that shows it, and cases that change it."""

    name: str
    project: Mapping[str, str]
    check: str
    honest_fix: Mapping[str, str]
    cases: tuple[Case, ...]
    needs: tuple[str, ...] = ()
    """Programs that have to be on this machine."""
    packages: tuple[str, ...] = ()
    """Packages of npm that are installed for it."""

    def controls(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.honest)

    def cheats(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if not case.honest)
