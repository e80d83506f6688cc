"""db-manager DATABASE KIND: a backup of a database, or (`restore`) its last backup brought back.

Asked twice, it does the same.
"""

import sys

from cluster import Refused, ask, report

database, kind = sys.argv[1:]
try:
    if kind == "restore":
        found = ask("/restore", database=database)
        report(f"{database} is as it was in {found['backup']}", changed=True)
    found = ask("/backup", database=database, kind=kind)
except Refused as no:
    report(f"{database}: {no}", changed=False, failed=True)
report(f"{database} is kept in {found['backup']}, {found['rows']} rows", changed=True, backup=found["backup"])
