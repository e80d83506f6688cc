"""What the three programs share: asking the cluster, and reporting to the fleet."""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

ANSWER_S = 20


class Refused(Exception):  # noqa: N818 - it is an answer
    """The cluster said no."""


def ask(path: str, **body: object) -> dict[str, Any]:
    """What the cluster answers to a request."""
    data = json.dumps(body).encode()
    url = os.environ["CLUSTER_URL"] + path  # the operator's
    request = urllib.request.Request(url, data=data, method="POST")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        raise Refused(error.read().decode("utf-8", "replace")) from error


def report(summary: str, *, changed: bool, failed: bool = False, **result: object) -> NoReturn:
    """Tell the fleet how it went, and whether anything is different now: that decides about a rollback."""
    said: dict[str, object] = {"status": "failed" if failed else "done", "summary": summary}
    said["result"] = {"changed": changed, **result}
    if failed:
        said["error"] = {"kind": "environment", "message": summary}
    Path(os.environ["FLEET_REPORT"]).write_text(json.dumps(said), encoding="utf-8")
    print(summary)
    sys.exit(int(failed))
