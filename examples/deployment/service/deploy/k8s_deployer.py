"""k8s-deployer SERVICE VERSION STRATEGY: install in the idle colour, migrate, switch, check; or switch back."""

import sys

from cluster import RefusedError, ask, report

service, version, strategy = sys.argv[1:]
try:
    if strategy == "switch_back":
        answer = ask("/switch", version=version)
        report(f"{service} {version} is live again, on {answer['colour']}", changed=True)
    idle = ask("/install", version=version)["colour"]
except RefusedError as error:
    report(f"{service} {version}: {error}", changed=False, failed=True)
try:
    ask("/migrate", version=version)
    ask("/switch", version=version)
    ask("/smoke", environment="production")
except RefusedError as error:
    report(f"{service} {version} is live but unhealthy: {error}", changed=True, failed=True)
report(f"{service} {version} is live, on {idle}", changed=True, colour=idle)
