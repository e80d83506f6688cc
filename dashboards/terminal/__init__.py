"""The terminal UI. It reads journals and puts requests into the inboxes of runs. It never runs the engine."""
