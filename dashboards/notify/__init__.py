"""Word when it matters: what a run needs a person for, sent where that person looks."""
