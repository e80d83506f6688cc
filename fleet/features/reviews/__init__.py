"""Reviews of changes by a second model."""
