"""The configuration of nodes."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from fleet.config.schema import Config
from fleet.core.plans.limits import MachineOffer
from fleet.ports.settings import Labels, Line, Section, Slug

MOST_OF_A_CLUSTER = 1000


class NodeSettings(Section):
    """A machine that runs attempts and checks, or a cluster of such machines."""

    refused: ClassVar[Mapping[str, str]] = {"": "sends your code to other machines with a command that runs as you"}

    command: Annotated[Line, Field(min_length=1)] | None = None
    ray: Annotated[Line, Field(pattern=r"^auto$|^[^\s/]+:\d{1,5}$")] | None = None
    slots: int | None = Field(default=None, ge=1, le=100_000)
    workers: int | None = Field(default=None, ge=0, le=1000)
    checks: int | None = Field(default=None, ge=0, le=1000)
    lands: bool | None = None
    labels: Labels | None = None
    lease_s: float | None = Field(default=None, ge=1, le=3600)

    @model_validator(mode="after")
    def _is_reached_in_one_way(self) -> Self:
        if self.command is None and self.ray is None:
            raise ValueError("requires command (or ray, for a Ray cluster)")
        if self.slots is not None and self.ray is None:
            raise ValueError("slots only applies to Ray clusters: set ray, or use workers instead")
        return self

    @property
    def most_workers(self) -> int:
        """Return the configured maximum of concurrent attempts, before the node is connected."""
        if self.ray is not None:
            return self.slots or MOST_OF_A_CLUSTER
        return 1 if self.workers is None else self.workers


Nodes = dict[Slug, NodeSettings]


def offers(config: Config) -> dict[str, tuple[MachineOffer, int]]:
    """Return the offer of each configured node, with its maximum of concurrent attempts."""
    return {
        name: (
            MachineOffer(labels=node.labels or (), lands=bool(node.lands), works=node.workers != 0),
            node.most_workers,
        )
        for name, node in config.named(NodeSettings).items()
    }
