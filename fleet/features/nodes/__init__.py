"""Attempts and checks on other machines: the protocol, both of its ends, and the choice of a machine for each order."""
