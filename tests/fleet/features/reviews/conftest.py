"""Reviews are tested over the scripted model of the agents."""

from tests.agents.conftest import model

__all__ = ["model"]
