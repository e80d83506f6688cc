"""`fleet merge`: merge a run's result into your branch, and land it again if the branch has moved."""
