"""Shared by the three programs: requests to the cluster, and the report to the fleet."""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

ANSWER_S = 20


class RefusedError(Exception):
    """The cluster refused a request. The message is its response."""


def ask(path: str, **body: object) -> dict[str, Any]:
    """The cluster's answer to a request."""
    data = json.dumps(body).encode()
    url = os.environ["CLUSTER_URL"] + path  # set by the operator
    request = urllib.request.Request(url, data=data, method="POST")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
            result: dict[str, Any] = json.load(answer)
            return result
    except urllib.error.HTTPError as error:
        raise RefusedError(error.read().decode("utf-8", "replace")) from error


def report(summary: str, *, changed: bool, failed: bool = False, **result: object) -> NoReturn:
    """Report the result, and whether anything has changed: that decides about a rollback."""
    report_data: dict[str, object] = {"status": "failed" if failed else "done", "summary": summary}
    report_data["result"] = {"changed": changed, **result}
    if failed:
        report_data["error"] = {"kind": "environment", "message": summary}
    Path(os.environ["FLEET_REPORT"]).write_text(json.dumps(report_data), encoding="utf-8")
    print(summary)
    sys.exit(int(failed))
