"""What one machine does for a run: the work of attempts, and checks. The same code in the manager and on nodes."""
