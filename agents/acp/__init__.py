"""Agents that speak the Agent Client Protocol, as workers: what such an agent is asked, and what it may ask for."""
