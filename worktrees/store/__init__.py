"""The bare repository of a target: its objects, the refs of its runs, snapshots, repair."""
