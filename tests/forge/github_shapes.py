"""What GitHub answers about a scripted forge: by `--json` of `gh`, and by GraphQL over an excerpt of its schema.

Shapes as in `api/export_pr.go` and `api/queries_*.go` of github.com/cli/cli, and GitHub's public GraphQL schema.
"""

from pathlib import Path
from typing import Any

from graphql import build_schema, graphql_sync

from tests.forge.scripted_ci import check_runs
from tests.forge.scripted_forge import NAME, OWNER, Json, head_of, note

HOST = "github.com"
WEB = f"https://{HOST}/{OWNER}/{NAME}"
ASSOCIATIONS = {"admin": "OWNER", "write": "COLLABORATOR", "read": "CONTRIBUTOR", "none": "NONE"}


def user(login: str) -> Json:
    return {"__typename": "User", "id": f"U_{login}", "login": login, "name": login.title()}


def labels(names: list[str]) -> list[Json]:
    return [{"id": f"LA_{name}", "name": name, "description": "", "color": "ededed"} for name in names]


def comment(state: Json, found: Json, url: str) -> Json:
    author = found["author"]
    return {
        "__typename": "IssueComment",
        "id": f"IC_{found['id']}",
        "author": {"login": author},
        "body": found["body"],
        "authorAssociation": ASSOCIATIONS[state["people"].get(author, "none")],
        "createdAt": found["at"],
        "includesCreatedEdit": False,
        "isMinimized": False,
        "minimizedReason": "",
        "reactionGroups": [],
        "url": f"{url}#issuecomment-{found['id']}",
        "viewerDidAuthor": author == state["me"],
    }


def issue(state: Json, found: Json) -> Json:
    url = f"{WEB}/issues/{found['number']}"
    return {
        "id": f"I_{found['number']}",
        "number": found["number"],
        "title": found["title"],
        "body": found["body"],
        "state": found["state"].upper(),
        "stateReason": "",
        "closed": found["state"] != "open",
        "url": url,
        "author": {"id": f"U_{found['author']}", "is_bot": False, "login": found["author"], "name": ""},
        "labels": labels(found["labels"]),
        "comments": [comment(state, each, url) for each in found["comments"]],
        "assignees": [],
        "milestone": None,
        "createdAt": found["at"],
        "updatedAt": found["at"],
        "closedAt": None,
    }


def pull(state: Json, remote: Path, found: Json, wanted: set[str]) -> Json:
    number, url = found["number"], f"{WEB}/pull/{found['number']}"
    author = {"id": f"U_{found['author']}", "is_bot": False, "login": found["author"], "name": ""}
    return {
        "id": f"PR_{number}",
        "number": number,
        "title": found["title"],
        "body": found["body"],
        "author": author,
        "state": found["state"].upper(),
        "closed": found["state"] != "open",
        "isDraft": found["draft"],
        "url": url,
        "baseRefName": found["base"],
        "headRefName": found["head"],
        "headRefOid": head_of(remote, found["head"]),
        "isCrossRepository": found["cross"],
        "headRepository": {"id": "R_1", "name": NAME},
        "headRepositoryOwner": {"id": "O_1", "login": "stranger" if found["cross"] else OWNER},
        "labels": labels(found["labels"]),
        "comments": [comment(state, each, url) for each in found["comments"]],
        "createdAt": found["at"],
        "updatedAt": found["at"],
        "mergeable": "MERGEABLE",
        "reviewDecision": "",
        "mergedAt": found["at"] if found["state"] == "merged" else None,
        "closedAt": None if found["state"] == "open" else found["at"],
        "reviews": [],
        "latestReviews": [],
        "assignees": [],
        "reviewRequests": [],
        "milestone": None,
        "statusCheckRollup": rollup(state, remote, found) if "statusCheckRollup" in wanted else [],
    }


def rollup(state: Json, remote: Path, found: Json) -> list[Json]:
    """The checks, in the shape of `--json statusCheckRollup`."""
    return [
        {
            "__typename": "CheckRun",
            "name": each.name,
            "workflowName": "CI",
            "startedAt": each.at,
            "status": "COMPLETED" if each.is_completed else "IN_PROGRESS",
            "conclusion": ("SUCCESS" if each.is_green else "FAILURE") if each.is_completed else "",
            "completedAt": each.at if each.is_completed else "0001-01-01T00:00:00Z",
            "detailsUrl": f"{WEB}/actions/runs/{each.run}/job/{each.run + 1_000_000}",
        }
        for each in check_runs(state, remote, found)
    ]


def checks(state: Json, remote: Path, found: Json) -> list[Json]:
    """The checks, in the shape of `gh pr checks --json`."""
    return [
        {
            "name": each["name"],
            "workflow": "CI",
            "event": "pull_request",
            "description": "",
            "state": each["conclusion"] or each["status"],
            "link": each["detailsUrl"],
            "startedAt": each["startedAt"],
            "completedAt": each["completedAt"],
            "bucket": {"SUCCESS": "pass", "FAILURE": "fail"}.get(each["conclusion"], "pending"),
        }
        for each in rollup(state, remote, found)
    ]


# ---- GraphQL ---------------------------------------------------------------------------------------------------------


def graphql(state: Json, remote: Path, query: str, variables: Json) -> Json:
    """The answer to a query or a mutation: `data` and `errors`."""
    schema = build_schema((Path(__file__).parent / "schema.graphql").read_text(encoding="utf-8"))
    root = _Root(state, remote)
    result = graphql_sync(schema, query, root, variable_values=variables)
    answer: Json = {"data": result.data}
    if result.errors:
        answer["errors"] = [
            {"message": error.message, "type": "NOT_FOUND", "path": error.path} for error in result.errors
        ]
    return answer


class _Root:
    """Fields of a query and of mutations. Graphql-core reads keys of dictionaries and calls what can be called."""

    def __init__(self, state: Json, remote: Path) -> None:
        self._state, self._remote = state, remote
        self.viewer = user(state["me"])
        self.rateLimit = {"limit": 5000, "remaining": 4990, "used": 10, "cost": 1, "resetAt": "2026-11-02T11:00:00Z"}

    def repository(self, _info: Any, owner: str, name: str) -> Json:
        if (owner, name) != (OWNER, NAME):
            raise LookupError(f"Could not resolve to a Repository with the name '{owner}/{name}'.")
        return {
            "id": "R_1",
            "name": NAME,
            "nameWithOwner": f"{OWNER}/{NAME}",
            "url": WEB,
            "viewerPermission": "WRITE",
            "owner": {"__typename": "Organization", "login": OWNER, "id": "O_1"},
            "defaultBranchRef": {"name": "main"},
            "pullRequest": self._pull,
            "issue": self._issue,
        }

    def _issue(self, _info: Any, number: int) -> Json:
        found = self._state["issues"].get(str(number))
        if found is None:
            raise LookupError(f"Could not resolve to an Issue with the number of {number}.")
        shape = issue(self._state, found)
        return {**shape, "labels": _page(shape["labels"]), "comments": _page(self._comments(shape["comments"]))}

    def _pull(self, _info: Any, number: int) -> Json:
        found = self._state["pulls"].get(str(number))
        if found is None:
            raise LookupError(f"Could not resolve to a PullRequest with the number of {number}.")
        shape = pull(self._state, self._remote, found, set())
        return {
            **shape,
            "author": user(found["author"]),
            "merged": found["state"] == "merged",
            "viewerDidAuthor": found["author"] == self._state["me"],
            "authorAssociation": ASSOCIATIONS[self._state["people"].get(found["author"], "none")],
            "labels": _page(shape["labels"]),
            "comments": _page(self._comments(shape["comments"])),
            "reviewThreads": _page([self._thread(found, each) for each in found["threads"]]),
            "reviews": _page([self._review(found, each) for each in found["reviews"]]),
            "commits": self._commits(found),
        }

    def _commits(self, found: Json) -> Any:
        runs = rollup(self._state, self._remote, found)
        contexts = [
            {
                **each,
                "conclusion": each["conclusion"] or None,
                "completedAt": each["completedAt"],
                "checkSuite": {"workflowRun": {"event": "pull_request", "workflow": {"name": "CI"}}},
            }
            for each in runs
        ]
        status = {"state": "SUCCESS", "contexts": _page(contexts)} if contexts else None
        commit = {"oid": head_of(self._remote, found["head"]), "statusCheckRollup": status}
        return _page([{"commit": commit}])

    def _comments(self, found: list[Json]) -> list[Json]:
        return [{**each, "author": user(each["author"]["login"]), "databaseId": int(each["id"][3:])} for each in found]

    def _review(self, found: Json, each: Json) -> Json:
        url = f"{WEB}/pull/{found['number']}#pullrequestreview-{each['id']}"
        return {
            "id": f"PRR_{each['id']}",
            "author": user(each["author"]),
            "body": each["body"],
            "url": url,
            "state": each["state"],
            "submittedAt": each["at"],
            "viewerDidAuthor": each["author"] == self._state["me"],
            "authorAssociation": ASSOCIATIONS[self._state["people"].get(each["author"], "none")],
        }

    def _thread(self, found: Json, thread: Json) -> Json:
        notes = [self._note(found, thread, each) for each in thread["comments"]]
        return {
            "id": thread["id"],
            "path": thread["path"],
            "line": thread["line"],
            "startLine": None,
            "originalLine": thread["original_line"],
            "originalStartLine": None,
            "diffSide": "RIGHT",
            "isResolved": thread["resolved"],
            "isOutdated": thread["outdated"],
            "isCollapsed": False,
            "subjectType": "LINE" if thread["original_line"] else "FILE",
            "resolvedBy": None,
            "viewerCanReply": True,
            "viewerCanResolve": True,
            "comments": _page(notes),
        }

    def _note(self, found: Json, thread: Json, each: Json) -> Json:
        return {
            "id": f"PRRC_{each['id']}",
            "databaseId": each["id"],
            "fullDatabaseId": str(each["id"]),
            "author": user(each["author"]),
            "body": each["body"],
            "createdAt": each["at"],
            "authorAssociation": ASSOCIATIONS[self._state["people"].get(each["author"], "none")],
            "url": f"{WEB}/pull/{found['number']}#discussion_r{each['id']}",
            "path": thread["path"],
            "line": thread["line"],
            "originalLine": thread["original_line"],
            "outdated": thread["outdated"],
            "viewerDidAuthor": each["author"] == self._state["me"],
            "isMinimized": False,
            "diffHunk": "",
        }

    # ---- mutations

    def addPullRequestReviewThreadReply(self, _info: Any, input: Json) -> Json:  # noqa: A002, N802 - GitHub's names
        found, thread = self._find(input["pullRequestReviewThreadId"])
        thread["comments"].append(added := note(self._state, self._state["me"], input["body"]))
        return {"comment": self._note(found, thread, added)}

    def resolveReviewThread(self, _info: Any, input: Json) -> Json:  # noqa: A002, N802 - GitHub's names
        found, thread = self._find(input["threadId"])
        thread["resolved"] = True
        return {"thread": self._thread(found, thread)}

    def addComment(self, _info: Any, input: Json) -> Json:  # noqa: A002, N802 - GitHub's names
        for kind, prefix in (("pulls", "PR_"), ("issues", "I_")):
            number = input["subjectId"].removeprefix(prefix)
            if number != input["subjectId"] and (found := self._state[kind].get(number)) is not None:
                found["comments"].append(added := note(self._state, self._state["me"], input["body"]))
                shape = comment(self._state, added, f"{WEB}/pull/{number}")
                return {"commentEdge": {"node": self._comments([shape])[0]}}
        raise LookupError(f"Could not resolve to a node with the global id of '{input['subjectId']}'")

    def _find(self, id_: str) -> tuple[Json, Json]:
        for found in self._state["pulls"].values():
            for thread in found["threads"]:
                if thread["id"] == id_:
                    return found, thread
        raise LookupError(f"Could not resolve to a node with the global id of '{id_}'")


def _page(nodes: list[Json]) -> Any:
    """A connection: `first` or `last` of them, `after` a cursor that is the number of those before."""

    def read(_info: Any, first: int | None = None, last: int | None = None, after: str | None = None) -> Json:
        if (first or last) is None or not 1 <= (first or last or 0) <= 100:
            raise ValueError(
                "You must provide a `first` or `last` value from 1 to 100 to properly paginate the connection."
            )
        start = int(after or 0) if first is not None else max(0, len(nodes) - (last or 0))
        end = start + first if first is not None else len(nodes)
        info = {"hasNextPage": end < len(nodes), "endCursor": str(end)}
        return {"nodes": nodes[start:end], "totalCount": len(nodes), "pageInfo": info}

    return read
