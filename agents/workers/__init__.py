"""The worker kinds, their registry, and the briefs, command lines and relay that they share.

Imports all other packages of the agents, except for the simulated model.
"""
