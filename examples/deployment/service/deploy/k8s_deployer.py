"""k8s-deployer SERVICE VERSION STRATEGY: put a version into the idle colour, migrate, switch, look. Or switch back."""

import sys

from cluster import Refused, ask, report

service, version, strategy = sys.argv[1:]
try:
    if strategy == "switch_back":
        found = ask("/switch", version=version)
        report(f"{service} {version} answers again, from {found['colour']}", changed=True)
    idle = ask("/install", version=version)["colour"]
except Refused as no:
    report(f"{service} {version}: {no}", changed=False, failed=True)
try:
    ask("/migrate", version=version)
    ask("/switch", version=version)
    ask("/smoke", environment="production")
except Refused as no:
    report(f"{service} {version} is switched to, and not well: {no}", changed=True, failed=True)
report(f"{service} {version} answers, from {idle}", changed=True, colour=idle)
