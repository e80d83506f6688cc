"""Runs the example of `make example-research`: research.py [question] [competitors]."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the project, not this folder
    from examples.research.scenes import main

    sys.exit(main(sys.argv[1:]))
