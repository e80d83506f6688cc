"""The worker kinds, one module each; the registry that names them; the briefs, command lines and relay they share.

Imports all other folders of the agents, except for the simulated model.
"""
