"""Bad weather over a simulated service: which calls fail for no fault of theirs. Time and chance are handed in."""

from collections.abc import Sequence
from random import Random

from agents.simulated.script import Spell


class Weather:
    """Begins with the first call."""

    def __init__(self, spells: Sequence[Spell], seed: int) -> None:
        self._spells = spells
        self._chance = Random(seed)  # noqa: S311 - weather is no secret
        self._began: float | None = None

    def strikes(self, now: float) -> Spell | None:
        """The spell that a call made now falls into, if it is hit."""
        if not self._spells:
            return None
        self._began = now if self._began is None else self._began
        passed = now - self._began
        for spell in self._spells:
            if spell.from_s <= passed < spell.to_s and self._chance.random() < spell.share:
                return spell
        return None
