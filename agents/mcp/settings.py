"""One server as the operator configured it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A program that the manager runs, and what it may be used for."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(repr=False)
    """All that it is given of variables, those with secrets included."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values in it that neither models nor transcripts may see."""
    tools: tuple[str, ...] = ()
    """Patterns of the tools that workers get. Empty: all."""
    timeout_s: float = 60.0
    """How long one call may take."""
