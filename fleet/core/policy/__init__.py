"""Decides the next steps and the effects that should run: pure rules over the state, which may change between versions.

Imports `base`, `plans` and `state`.
"""
