"""What the terminal UI reads: followed runs, replays, transcripts, and the ports they come through."""
