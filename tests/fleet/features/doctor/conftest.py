"""The tests of calls share these with those of agents."""

from tests.agents.conftest import model, no_environment

__all__ = ["model", "no_environment"]
