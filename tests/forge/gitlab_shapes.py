"""What GitLab's REST interface answers about a scripted forge, as `glab` prints it."""

from pathlib import Path

from tests.forge.scripted_ci import CheckRun, check_runs
from tests.forge.scripted_forge import NAME, OWNER, Json, head_of

HOST = "gitlab.com"
WEB = f"https://{HOST}/{OWNER}/{NAME}"
LEVELS = {"admin": 50, "write": 30, "read": 20}
STATES = {"open": "opened", "closed": "closed", "merged": "merged"}


def user(state: Json, login: str) -> Json:
    id_ = sorted(state["people"]).index(login) + 1 if login in state["people"] else 99
    return {
        "id": id_,
        "username": login,
        "name": login.title(),
        "state": "active",
        "locked": False,
        "avatar_url": "",
        "web_url": f"https://{HOST}/{login}",
    }


def project() -> Json:
    return {
        "id": 1,
        "name": NAME,
        "path": NAME,
        "path_with_namespace": f"{OWNER}/{NAME}",
        "default_branch": "main",
        "web_url": WEB,
        "http_url_to_repo": f"{WEB}.git",
        "ssh_url_to_repo": f"git@{HOST}:{OWNER}/{NAME}.git",
        "permissions": {"project_access": {"access_level": 30}, "group_access": None},
    }


def issue(state: Json, found: Json) -> Json:
    number = found["number"]
    return {
        "id": 7000 + number,
        "iid": number,
        "project_id": 1,
        "title": found["title"],
        "description": found["body"],
        "state": STATES[found["state"]],
        "author": user(state, found["author"]),
        "labels": found["labels"],
        "created_at": found["at"],
        "updated_at": found["at"],
        "closed_at": None,
        "milestone": None,
        "assignees": [],
        "web_url": f"{WEB}/-/issues/{number}",
        "user_notes_count": len(found["comments"]),
        "confidential": False,
        "references": {"short": f"#{number}", "relative": f"#{number}", "full": f"{OWNER}/{NAME}#{number}"},
    }


def merge_request(state: Json, remote: Path, found: Json, *, pipeline: bool = False) -> Json:
    number = found["number"]
    shape = {
        "id": 8000 + number,
        "iid": number,
        "project_id": 1,
        "title": found["title"],
        "description": found["body"],
        "state": STATES[found["state"]],
        "author": user(state, found["author"]),
        "labels": found["labels"],
        "draft": found["draft"],
        "source_branch": found["head"],
        "target_branch": found["base"],
        "sha": head_of(remote, found["head"]),
        "source_project_id": 2 if found["cross"] else 1,
        "target_project_id": 1,
        "created_at": found["at"],
        "updated_at": found["at"],
        "closed_at": None,
        "merged_at": found["at"] if found["state"] == "merged" else None,
        "web_url": f"{WEB}/-/merge_requests/{number}",
        "references": {"short": f"!{number}", "relative": f"!{number}", "full": f"{OWNER}/{NAME}!{number}"},
        "user_notes_count": len(found["comments"]),
        "has_conflicts": False,
        "detailed_merge_status": "mergeable",
    }
    if pipeline:
        found_pipelines = pipelines(state, remote, found)
        shape["head_pipeline"] = found_pipelines[0] if found_pipelines else None
    return shape


def pipelines(state: Json, remote: Path, found: Json) -> list[Json]:
    """The pipeline of the head: its number is that of its first check."""
    runs = check_runs(state, remote, found)
    if not runs:
        return []
    sha = head_of(remote, found["head"])
    status = "running" if not all(each.is_completed for each in runs) else "success"
    status = "failed" if any(each.is_completed and not each.is_green for each in runs) else status
    state.setdefault("pipelines", {})[str(runs[0].run)] = found["number"]
    shape = {"id": runs[0].run, "iid": 1, "project_id": 1, "sha": sha, "ref": found["head"], "status": status}
    return [{**shape, "source": "merge_request_event", "web_url": f"{WEB}/-/pipelines/{runs[0].run}"}]


def job(run: CheckRun) -> Json:
    status = ("success" if run.is_green else "failed") if run.is_completed else "running"
    return {
        "id": run.run + 1_000_000,
        "name": run.name,
        "stage": "test",
        "status": status,
        "allow_failure": False,
        "web_url": f"{WEB}/-/jobs/{run.run + 1_000_000}",
        "created_at": run.at,
        "failure_reason": None,
    }


def note(state: Json, found: Json, kind: str, thread: Json | None = None) -> Json:
    shape = {
        "id": found["id"],
        "type": None,
        "body": found["body"],
        "author": user(state, found["author"]),
        "created_at": found["at"],
        "updated_at": found["at"],
        "system": False,
        "noteable_type": kind,
        "resolvable": thread is not None,
        "internal": False,
    }
    if thread is not None:
        path, line = thread["path"], thread["line"] or thread["original_line"]
        position = {"new_path": path, "old_path": path, "new_line": line, "old_line": None, "position_type": "text"}
        shape |= {"type": "DiffNote", "position": position, "resolved": thread["resolved"], "resolved_by": None}
    return shape


def discussions(state: Json, found: Json) -> list[Json]:
    """Threads on lines first, then each other comment as a discussion of its own."""
    threads = [
        {
            "id": thread["id"],
            "individual_note": False,
            "notes": [note(state, each, "MergeRequest", thread) for each in thread["comments"]],
        }
        for thread in found["threads"]
    ]
    single = [
        {"id": f"c{each['id']}", "individual_note": True, "notes": [note(state, each, "MergeRequest")]}
        for each in found["comments"]
    ]
    return threads + single
