"""`fleet`, killed once at a crash point. The next process of the same command survives.

    python -m chaos.killed_at "an order was given" 1 /some/marker run --plan plan.json

The marker file records that the kill happened.
"""

import os
import signal
import sys
from collections import Counter

from fleet.cli.entry import run_program
from fleet.runs.crash_points import listening
from scripts.frame import MET


def main() -> int:
    point, number, marker, *arguments = sys.argv[1:]
    count = Counter[str]()

    def listener(name: str) -> None:
        count[name] += 1
        if name == point and count[name] == int(number) and not os.path.exists(marker):  # noqa: PTH110 - at a crash point
            os.close(os.open(marker, os.O_WRONLY | os.O_CREAT))
            os.kill(os.getpid(), signal.SIGKILL)

    sys.argv[1:] = arguments
    with listening(listener):
        run_program()
    return MET


if __name__ == "__main__":
    sys.exit(main())
