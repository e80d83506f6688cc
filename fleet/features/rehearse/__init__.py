"""Rehearsals: replay the latest commits of a repository as a run, free of charge, or let workers do them again."""
