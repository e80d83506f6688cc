"""What a model may do: one file per tool of the workers, `submit_revision`, and the registry of all tools."""
