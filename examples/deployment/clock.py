"""`fleet` with a clock that can be moved: clock.py FILE ARGUMENTS…; FILE holds how many seconds it is ahead.

Nobody wants to wait for two in the morning to see an example.
"""

import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the project, not this folder
    from fleet import app, clock
    from fleet.cli import main

    ahead = Path(sys.argv.pop(1))

    class MovedClock(clock.SystemClock):
        """Real time, and what the file says on top."""

        def now(self) -> float:
            return time.time() + float(ahead.read_text(encoding="utf-8") or 0)

    app.SystemClock = MovedClock  # type: ignore[attr-defined]
    sys.argv[0] = "fleet"
    main()
