"""Runs the example of `make example-deployment`: deployment.py [good] [tests] [deploy] [reject]."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the project, not this folder
    from examples.deployment.scenes import main

    sys.exit(main(sys.argv[1:]))
