"""Rehearsals: the last commits of a repository as a run, replayed free of charge or done again for real."""
