"""Calls to models between a node and its manager: how they are asked for there, and made here."""
