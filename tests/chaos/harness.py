"""Runs a chaos program in an interpreter of its own: it forks, and a process with threads should not."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1500


def met_rows(*arguments: str) -> int:
    """The number of rows that meet their target, if all of them do."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT MET" not in done.stdout
    return done.stdout.count("  met")
