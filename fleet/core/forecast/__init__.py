"""A plan played in advance: what it may cost and take. Knows nothing of runs, models or the reasons of choices."""
