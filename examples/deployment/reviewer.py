"""Simulates a reviewer with an editor: reviewer.py MOMENT FILE. `fleet approve --edit` opens FILE with it.

Adds a line to step 3: it must not start before MOMENT.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    moment, file = sys.argv[1], Path(sys.argv[2])
    before, step, after = file.read_text(encoding="utf-8").partition('id = "step-3"\n')
    if not step:
        sys.exit("reviewer: the plan has no step-3")
    file.write_text(f"{before}{step}not_before = {moment}\n{after}", encoding="utf-8")
    print(f"  the reviewer writes below step-3: not_before = {moment}", flush=True)
