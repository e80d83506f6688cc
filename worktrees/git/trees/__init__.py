"""Trees of git: compared, merged, written and checked out, in process or by git. `repository.py` above is the door."""
