"""Runs the demo of `make demo`: demo.py [--subtasks 16|120] [--workers N] [--keep DIR] [--sandbox bubblewrap|none]
[--nodes FILE]."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the project, not this folder
    from examples.demo.story import main

    sys.exit(main())
