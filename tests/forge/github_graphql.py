"""What GitHub's GraphQL interface answers about a scripted forge, executed over an excerpt of its public schema."""

from pathlib import Path
from typing import Any

from graphql import build_schema, graphql_sync

from tests.forge.github_shapes import ASSOCIATIONS, WEB, comment, issue, pull, rollup, user
from tests.forge.scripted_forge import NAME, OWNER, Json, head_of, note


def graphql(state: Json, remote: Path, query: str, variables: Json) -> Json:
    """The answer to a query or a mutation: `data` and `errors`."""
    text = (Path(__file__).parent / "schema.graphql").read_text(encoding="utf-8")
    schema = build_schema(text, assume_valid=True, no_location=True)
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
            "createdAt": each["at"],
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
