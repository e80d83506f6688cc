"""The state as planners, scripts and people read it. Imports `base`, `plans`, `state` and `policy`."""
