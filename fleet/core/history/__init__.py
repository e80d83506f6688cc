"""How each fact changes the state. Its meaning never changes, so that an old journal still loads.

Imports `base`, `plans` and `state`, nothing else: a change of policy must not change the meaning of an old journal.
"""
