"""Applies facts to the state. The meaning of a fact never changes, so that old journals still load.

Imports only `base`, `plans` and `state`, because policy changes must not affect old journals.
"""
