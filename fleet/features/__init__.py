"""What a run can do without. Each feature is a folder, named in `table.py`; without both, the rest works."""
