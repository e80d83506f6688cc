"""The terminal UI: a client of the journal that shows runs and puts requests into their inboxes. Never the engine."""
