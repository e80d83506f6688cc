"""What the programs of a check report: the tests that ran, and what an analyser found."""
