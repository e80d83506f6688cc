"""The sandbox for commands, and its users: checks and a worker's workspace. Imports `base`."""
