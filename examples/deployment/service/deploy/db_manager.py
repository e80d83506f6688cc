"""db-manager DATABASE KIND: back up a database, or (`restore`) restore its last backup.

Idempotent.
"""

import sys

from cluster import RefusedError, ask, report

database, kind = sys.argv[1:]
try:
    if kind == "restore":
        answer = ask("/restore", database=database)
        report(f"{database} is restored from {answer['backup']}", changed=True)
    answer = ask("/backup", database=database, kind=kind)
except RefusedError as error:
    report(f"{database}: {error}", changed=False, failed=True)
report(f"{database} is backed up to {answer['backup']}, {answer['rows']} rows", changed=True, backup=answer["backup"])
