"""What the verdicts of this machine show about the nodes whose answers they confirm or contradict."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_WRONG_REDS = 3
"""Of one node, one after another: then it gets nothing for a while."""


@dataclass(slots=True)
class NodeRecord:
    """The record of each node of a run, by its name."""

    distrust: Callable[[str, str], None] = lambda *_: None
    """Takes the name of a node that reported green what is red, and why."""
    rest: Callable[[str, str], None] = lambda *_: None
    """Takes the name of a node that should get nothing for a while, and why."""
    _wrong_reds: Counter[str] = field(default_factory=Counter)
    _named: set[tuple[str, str]] = field(default_factory=set)
    """Nodes and commands that a warning has named."""

    def clear(self, node: str) -> None:
        """It reported a success, or a failure that was confirmed."""
        del self._wrong_reds[node]

    def add_wrong_red(self, node: str, command: str, on: str) -> str:
        """It reported red what passes here. What a person should read about it, the first time; empty otherwise."""
        self._wrong_reds[node] += 1
        if (times := self._wrong_reds[node]) >= MOST_WRONG_REDS:
            self.rest(node, f"{times} checks in a row failed there and pass here, the last one `{command}` on {on}")
        if (node, command) in self._named:
            return ""
        self._named.add((node, command))
        return f"node {node} reported that `{command}` fails on {on}; here it passes, and that counts"
