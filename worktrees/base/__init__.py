"""Child processes, tasks, errors, files and settings: the base of every other room here. Imports none of them."""
