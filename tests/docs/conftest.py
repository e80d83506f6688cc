"""Simulated models for the pages that ask for one: the same as whole runs are tested with."""

from tests.e2e.conftest import model, portal

__all__ = ["model", "portal"]
