"""Why each landed commit is there, and whether git and the journal agree about it. Imports all of the core."""
