"""Whom a run believes: what nodes say of checks, compared with what this machine finds.

A node that is broken, or lies, must not be able to make honest work fail, nor bad work land (docs/decisions/0096).
Knows nothing of how checks are run.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun, WarningNoted
from fleet.ports.journal import Clock, Recorder

MOST_WRONG_REDS = 3
"""Of one node, one after another: then it gets nothing for a while."""


@dataclass(slots=True)
class NodeTrust:
    """Decides whose answers count, by the record of each node of a run.

    A word is an answer that this machine confirms before it counts against work.
    """

    engine: Recorder
    clock: Clock
    distrust: Callable[[str, str], None] = lambda *_: None
    """Takes the name of a node that reported green what is red, and why."""
    rest: Callable[[str, str], None] = lambda *_: None
    """Takes the name of a node that should get nothing for a while, and why."""
    _wrong_reds: Counter[str] = field(default_factory=Counter)
    _named: set[tuple[str, str]] = field(default_factory=set)
    """Nodes and commands that a warning has named."""

    def is_word(self, run: CheckRun) -> bool:
        """Whether it is only what a node says."""
        return bool(run.node)

    def take(self, run: CheckRun) -> None:
        """A success of a node clears it."""
        if run.node and run.passed:
            self._clear(run.node)

    async def compare(self, word: CheckRun, found: CheckRun, commit: Sha) -> None:
        """What a node said of a check, and what was found where verdicts count."""
        if word.fine:
            if not found.fine and not found.node and not found.timed_out:
                why = f"it reported that `{found.command}` passes on {commit[:12]}; here it fails"
                self.distrust(word.node, why)
        elif found.fine:
            if text := self._add_wrong_red(word.node, found.command, commit[:12]):
                await self.engine.record(WarningNoted(at=self.clock.now(), text=text))
        elif not found.timed_out:
            self._clear(word.node)

    def _clear(self, node: str) -> None:
        """It reported a success, or a failure that was confirmed."""
        del self._wrong_reds[node]

    def _add_wrong_red(self, node: str, command: str, on: str) -> str:
        """It reported red what passes here. What a person should read about it, the first time; empty otherwise."""
        self._wrong_reds[node] += 1
        if (times := self._wrong_reds[node]) >= MOST_WRONG_REDS:
            self.rest(node, f"{times} checks in a row failed there and pass here, the last one `{command}` on {on}")
        if (node, command) in self._named:
            return ""
        self._named.add((node, command))
        return f"node {node} reported that `{command}` fails on {on}; here it passes, and that counts"
