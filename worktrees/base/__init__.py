"""Child processes, tasks, errors, files and settings, used by all other packages here. Imports none of them."""
