"""What `gh` prints about a scripted forge with `--json`, in the shapes of `api/export_pr.go` of github.com/cli/cli."""

from pathlib import Path

from tests.forge.scripted_ci import check_runs
from tests.forge.scripted_forge import NAME, OWNER, Json, head_of

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
