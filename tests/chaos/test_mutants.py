"""The mistakes of `make chaos-mutants` still fit the product; whether each is detected takes minutes to show."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
APPLY_ALL = """
from chaos.mutants import MUTANTS
for mutant in MUTANTS.values():
    mutant.apply_all()
print(len(MUTANTS))
"""


def test_every_mistake_finds_what_it_changes() -> None:
    """In an interpreter of its own, because nothing is restored."""
    done = subprocess.run([sys.executable, "-c", APPLY_ALL], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
