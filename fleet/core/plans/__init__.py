"""The plan language: plans, plan files, parameters, validation, revisions, grading, limits. Imports `base`."""
