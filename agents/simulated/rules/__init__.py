"""The rules of the Messages API: what it refuses, drops, caches and counts; each module states its own."""
