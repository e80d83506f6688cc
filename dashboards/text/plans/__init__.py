"""Plans as text: for their reviewer, and as graphs."""
