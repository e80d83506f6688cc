"""Optional features. Each is a folder listed in `table.py`. Without both, the rest of fleet works."""
