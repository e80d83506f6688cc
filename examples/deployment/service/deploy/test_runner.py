"""test-runner SUITE ENVIRONMENT: the suite here, then the same questions to the service in that environment."""

import subprocess
import sys

from cluster import Refused, ask, report

suite, environment = sys.argv[1:]
tests = subprocess.run([sys.executable, "-m", "unittest", "discover", "-t", "."], check=False)
if tests.returncode != 0:
    report(f"the {suite} suite is red", changed=False, failed=True)
try:
    seen = ask("/smoke", environment=environment)
except Refused as no:
    report(f"{environment} does not do what it should: {no}", changed=False, failed=True)
report(f"the {suite} suite is green, and {environment} answers as {seen['version']}", changed=False)
