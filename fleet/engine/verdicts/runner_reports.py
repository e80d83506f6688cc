"""What the programs of checks reported: which tests ran, and which commands owe such a report.

The word of a node is kept apart until this machine has seen the same: a node that is broken, or lies, must not be able
to make honest work fail by what it says of other runs (docs/decisions/0096).
"""

from dataclasses import dataclass, field

from fleet.core.base.ids import Sha
from fleet.core.plans.plan import Criterion
from fleet.core.state.facts import CheckRun, RanTests


@dataclass(frozen=True, slots=True)
class Claim:
    """A node's word that a command reports its tests: on which commit, and whether by their names."""

    commit: Sha
    criterion: Criterion
    names: bool


@dataclass(slots=True)
class RunnerReports:
    """The reports of one life of a run. Earlier lives left only their numbers."""

    _ran: dict[tuple[Sha, str], RanTests] = field(default_factory=dict)
    """By tree and command."""
    _by_nodes: set[tuple[Sha, str]] = field(default_factory=set)
    """Those that are only a node's word."""
    _reporting: set[str] = field(default_factory=set)
    """Commands that reported or counted their tests once, and must do so from then on."""
    _naming: set[str] = field(default_factory=set)
    """Those of them that named their tests: for them, a number is not enough."""
    _claims: dict[str, Claim] = field(default_factory=dict)
    """What nodes say of commands that are not known to report."""

    def take(self, commit: Sha, tree: Sha, run: CheckRun, criterion: Criterion, *, trusted: bool) -> bool:
        """Keep what a run reported. False where it reported nothing, or only a number of tests that had names."""
        key, report = (tree, run.command), run.ran_tests
        if report is None or (report.count is not None and run.command in self._naming):
            if trusted and key in self._by_nodes:
                self._forget(key)
            return False
        self._ran[key] = report
        names = report.count is None
        if trusted:
            self._by_nodes.discard(key)
            self._reporting.add(run.command)
            if names:
                self._naming.add(run.command)
        else:
            self._by_nodes.add(key)
            known = self._claims.get(run.command)
            if known is None or (names and not known.names):
                self._claims[run.command] = Claim(commit, criterion, names)
        return True

    def remember(self, run: CheckRun) -> None:
        """Take over that a command counted its tests, as a run of this machine's says."""
        if run.tests is not None and not run.node:
            self._reporting.add(run.command)

    def of(self, tree: Sha, command: str) -> RanTests | None:
        """What a command ran on a tree, as far as this life of the run knows."""
        return self._ran.get((tree, command))

    def is_word_of_node(self, tree: Sha, command: str) -> bool:
        return (tree, command) in self._by_nodes

    def reports(self, command: str) -> bool:
        """Whether the runner that this command starts reports its tests."""
        return command in self._reporting

    def claim(self, run: CheckRun) -> Claim | None:
        """What a node says of the command of a run that reported less, if no run of this machine showed the same."""
        claim = self._claims.get(run.command)
        known = self._naming if claim is not None and claim.names else self._reporting
        if claim is None or run.command in known:
            return None
        reported = run.ran_tests is not None and (run.ran_tests.count is None or not claim.names)
        return None if reported else claim

    def drop_claim(self, command: str) -> None:
        self._claims.pop(command, None)

    def _forget(self, key: tuple[Sha, str]) -> None:
        self._by_nodes.discard(key)
        del self._ran[key]
