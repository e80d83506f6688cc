"""The composition root: the verbs of a run, wired from the concrete adapters. Enters all but `fleet.cli`."""
