"""The output of the bridge program: one JSON line per change of the cluster."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

SOCKET = "cluster"  # in the folder of the program
LONGEST_LINE = 1024 * 1024
MOST_HOSTS = 4_000
HostId = Annotated[str, Field(pattern=r"^[0-9a-f]{8,128}$")]
Text = Annotated[str, Field(max_length=2_000)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClusterHost(_Line):
    """A machine of a cluster."""

    id: HostId
    processors: Annotated[int, Field(ge=1, le=100_000)]


class ClusterHosts(_Line):
    """The current machines of the cluster."""

    type: Literal["hosts"] = "hosts"
    hosts: Annotated[tuple[ClusterHost, ...], Field(max_length=MOST_HOSTS)]


class Disconnected(_Line):
    """Why a connection to a machine ended, as reported by Ray or the node."""

    type: Literal["said"] = "said"
    host: HostId
    text: Text


class ClusterFailed(_Line):
    """The cluster can't be used. The program exits."""

    type: Literal["failed"] = "failed"
    text: Text


ClusterEvent = ClusterHosts | Disconnected | ClusterFailed
_news: TypeAdapter[ClusterEvent] = TypeAdapter(Annotated[ClusterEvent, Field(discriminator="type")])


def load_cluster_event(line: bytes) -> ClusterEvent:
    """Parse a line. Raises `ValueError`."""
    try:
        return _news.validate_json(line)
    except ValidationError as error:
        raise ValueError("invalid output of the program that connects to Ray") from error
