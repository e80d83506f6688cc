"""Runs `fleet` with a clock that can be moved: clock.py FILE ARGUMENTS…

FILE contains the number of seconds that the clock is ahead. The example does not have to wait until two in the morning.
"""

import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the project, not this folder
    from fleet.app import fleet
    from fleet.cli.entry import run_program
    from fleet.engine import loop

    ahead = Path(sys.argv.pop(1))

    class MovedClock(loop.SystemClock):
        """Real time plus what the file says."""

        def now(self) -> float:
            return time.time() + float(ahead.read_text(encoding="utf-8") or 0)

    fleet.SystemClock = MovedClock  # type: ignore[attr-defined]
    sys.argv[0] = "fleet"
    run_program()
