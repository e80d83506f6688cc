"""`fleet merge`: the result of a run in a branch of the user's, landed again where that branch has moved."""
