"""How a models' service is reached, and what it lacks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.core.base.capabilities import Capability


@dataclass(frozen=True, slots=True)
class Access:
    """One service."""

    base_url: str
    api_key: str = field(repr=False)
    without: frozenset[Capability] = frozenset()
    """What the service lacks, for every model."""
    model_without: Mapping[str, frozenset[Capability]] = field(default_factory=dict)
    """What single models lack."""

    def lacking(self, model: str) -> frozenset[Capability]:
        return self.without | self.model_without.get(model, frozenset())
