"""What a run starts from: an epic or a plan file, the library of plans, and the preview of a plan without a run.

Enters `fleet.core`, `fleet.ports`, the TOML reader of `fleet.config` and its place for the user's files.
"""
