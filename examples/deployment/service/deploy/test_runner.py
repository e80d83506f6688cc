"""test-runner SUITE ENVIRONMENT: run the suite here, then the smoke test in that environment."""

import subprocess
import sys

from cluster import RefusedError, ask, report

suite, environment = sys.argv[1:]
tests = subprocess.run([sys.executable, "-m", "unittest", "discover", "-t", "."], check=False)
if tests.returncode != 0:
    report(f"the {suite} suite fails", changed=False, failed=True)
try:
    seen = ask("/smoke", environment=environment)
except RefusedError as error:
    report(f"the smoke test on {environment} fails: {error}", changed=False, failed=True)
report(f"the {suite} suite passes, and {environment} runs {seen['version']}", changed=False)
