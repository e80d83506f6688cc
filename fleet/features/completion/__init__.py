"""The completion of a command line, installed for a shell. What it offers at the cursor is known to the verbs."""
