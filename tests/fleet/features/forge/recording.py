"""A `gh` or `glab` that answers from a list and keeps what it was asked: for what is in an argument list."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleet.core.base.forges import FORGES
from fleet.features.forge.forge import ForgePlace
from fleet.features.forge.program import Program
from worktrees.base.process import Finished

COMMENT = {"id": "C1", "author": {"login": "ann"}, "body": "Please.", "createdAt": "2026-11-01T00:00:00Z"}
PULL = {
    "number": 5,
    "url": "https://github.com/acme/shop/pull/5",
    "title": "Shop",
    "body": "Text",
    "state": "OPEN",
    "isDraft": True,
    "headRefName": "fleet/x",
    "headRefOid": "a" * 40,
    "baseRefName": "main",
    "labels": [],
    "author": {"login": "ann"},
    "isCrossRepository": False,
    "statusCheckRollup": [
        {"__typename": "CheckRun", "name": "test", "workflowName": "CI", "status": "COMPLETED"}
        | {"conclusion": "FAILURE", "detailsUrl": "https://github.com/acme/shop/actions/runs/1/job/22"},
        {"__typename": "CheckRun", "name": "lint", "workflowName": "CI", "status": "IN_PROGRESS", "conclusion": ""},
        {"__typename": "StatusContext", "context": "deploy", "state": "SUCCESS", "targetUrl": "https://ci.acme.io/1"},
    ],
}
ISSUE = {
    "number": 12,
    "title": "Broken",
    "body": "It is.",
    "state": "OPEN",
    "url": "https://github.com/acme/shop/issues/12",
    "author": {"login": "ann"},
    "labels": [{"name": "bug"}],
    "comments": [COMMENT],
}
NODES = {"pageInfo": {"hasNextPage": False, "endCursor": None}, "nodes": [COMMENT]}
THREADS = {
    "pageInfo": {"hasNextPage": False, "endCursor": None},
    "nodes": [{"id": "T1", "path": "a.py", "line": 3, "isResolved": False, "comments": {"nodes": [COMMENT]}}],
}
GRAPHQL = {
    "data": {
        "viewer": {"login": "fleet-bot"},
        "repository": {"pullRequest": {"reviewThreads": THREADS, "comments": NODES, "reviews": NODES}},
    }
}
GH: dict[str, object] = {
    "repo view": {"defaultBranchRef": {"name": "main"}, "viewerPermission": "WRITE"},
    "issue view": ISSUE,
    "pr view": PULL,
    "pr list": [PULL],
    "pr create": "https://github.com/acme/shop/pull/5",
    "api graphql": GRAPHQL,
    "api --hostname": {"permission": "write"},
    "run view": "test\tRun tests\t2026-11-01T00:00:00.0000000Z 1 failed\n",
}
MERGE = {
    "iid": 5,
    "web_url": "https://gitlab.com/acme/shop/-/merge_requests/5",
    "title": "Draft: Shop",
    "state": "opened",
    "draft": True,
    "source_branch": "fleet/x",
    "target_branch": "main",
    "sha": "a" * 40,
    "labels": ["x"],
    "description": "Text",
    "author": {"id": 1, "username": "ann"},
}
NOTE = {"id": 1, "body": "Please.", "author": {"id": 1, "username": "ann"}, "resolvable": True}
GLAB: dict[str, object] = {
    "user": {"id": 1, "username": "fleet-bot"},
    "users": [{"id": 1, "username": "ann"}],
    "projects/acme%2Fshop": {"default_branch": "main", "permissions": {"project_access": {"access_level": 40}}},
    "projects/acme%2Fshop/members/all/1": {"access_level": 30},
    "projects/acme%2Fshop/issues/12": {"iid": 12, "title": "Broken", "web_url": "https://x", "state": "opened"},
    "projects/acme%2Fshop/issues/12/notes": [NOTE],
    "projects/acme%2Fshop/merge_requests/5": MERGE,
    "projects/acme%2Fshop/merge_requests/5/pipelines": [{"id": 9, "sha": "a" * 40}, {"id": 8, "sha": "b" * 40}],
    "projects/acme%2Fshop/pipelines/9/jobs": [{"id": 22, "name": "test", "stage": "check", "status": "failed"}],
    "projects/acme%2Fshop/jobs/22/trace": "1 failed",
    "projects/acme%2Fshop/merge_requests/5/discussions": [
        {"id": "T1", "notes": [NOTE | {"position": {"new_path": "a.py", "new_line": 3}}]},
        {"id": "T2", "notes": [NOTE | {"resolvable": False}]},
    ],
}


GITHUB, GITLAB = FORGES


@dataclass(frozen=True, slots=True)
class Recording(Program):
    """Keeps every argument list, and every standard input."""

    calls: list[tuple[str, ...]] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    fails: tuple[int, str] = (0, "")

    async def finish(self, arguments: Sequence[str], data: bytes = b"", *, timeout_s: float = 1.0) -> Finished:  # noqa: ARG002
        self.calls.append(tuple(arguments))
        self.inputs.append(data.decode())
        code, error = self.fails
        answer = "" if code else self._answer(arguments)
        return Finished(code, answer.encode(), error.encode(), timed_out=False, cut=False, seconds=0.0)

    def _answer(self, arguments: Sequence[str]) -> str:
        if self.place.kind is GITHUB:
            answer = GH.get(" ".join(arguments[:2]), "")
        else:
            path = arguments[-1].partition("?")[0]
            lists = path.endswith("/merge_requests") and "--method=POST" not in arguments
            answer = [MERGE] if lists else MERGE if path.endswith("/merge_requests") else GLAB.get(path, {})
        return answer if isinstance(answer, str) else json.dumps(answer)


def recording(place: ForgePlace, *, fails: tuple[int, str] = (0, "")) -> Recording:
    return Recording(place, {}, fails=fails)
