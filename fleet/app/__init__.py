"""The composition root: wires runs from the concrete adapters. May import everything except `fleet.cli`."""
