"""The box that commands run in, and what runs in it: checks and a worker's workspace. Imports `base`."""
