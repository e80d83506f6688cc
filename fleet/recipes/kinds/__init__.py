"""One module for each family of projects: what its files say about its tests, its dependencies and its tools."""
