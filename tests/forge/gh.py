"""`gh` of ours: the argument lists of GitHub's program, answered from a scripted forge. It refuses the rest."""

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from tests.forge import github_shapes as shapes
from tests.forge.answering import Call, RefusedError, answer
from tests.forge.scripted_ci import run_of
from tests.forge.scripted_forge import NAME, OWNER, Json, head_of, note, open_pull

NOT_LOGGED_IN = (
    "To get started with GitHub CLI, please run:  gh auth login\n"
    "Alternatively, populate the GH_TOKEN environment variable with a GitHub API authentication token."
)
LIMITED = "API rate limit exceeded for user ID 1000."
SECONDARY = (
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again. "
    "If you reach out to GitHub Support for help, please include the request ID 9F1C:2B."
)
FAULTS = {
    "network": RefusedError(
        "error connecting to api.github.com\ncheck your internet connection or https://githubstatus.com"
    ),
    "not_logged_in": RefusedError(NOT_LOGGED_IN, 4),
}


class _Parser(argparse.ArgumentParser):
    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise RefusedError(f"unknown flag or argument: {message}")


def main() -> None:
    answer("gh", _perform, FAULTS, _limited)


def _limited(call: Call, kind: str) -> RefusedError:
    """How a refused call reads: GraphQL prints its message, REST also the status."""
    message = LIMITED if kind == "rate_limit" else SECONDARY if kind == "secondary_rate_limit" else "Bad Gateway"
    status = 502 if kind == "server" else 403
    if call.arguments[:1] == ["api"] and call.arguments[1:2] != ["graphql"]:
        return RefusedError(f"gh: {message} (HTTP {status})")
    return RefusedError(f"HTTP {status}: {message} (https://api.github.com/graphql)")


def _perform(call: Call) -> str:
    arguments = call.arguments
    if arguments == ["--version"]:
        return f"gh version {call.state['gh_version']} (2026-01-01)\n"
    for words, act in COMMANDS.items():
        if tuple(arguments[: len(words)]) == words:
            return act(call, arguments[len(words) :])
    raise RefusedError(f'unknown command "{" ".join(arguments[:2])}" for "gh"')


def _parsed(
    rest: Sequence[str], *flags: str, switches: Sequence[str] = (), selector: bool = True
) -> argparse.Namespace:
    parser = _Parser()
    for name in (*flags, "--repo"):
        short = {"--repo": "-R", "--json": "", "--head": "-H", "--base": "-B", "--body-file": "-F"}.get(name, "")
        parser.add_argument(name, *([short] if short else []), action="append" if name == "--label" else "store")
    for name in switches:
        parser.add_argument(name, action="store_true")
    if selector:
        parser.add_argument("selector", nargs="?")
    return parser.parse_args(list(rest))


def _known_repository(repo: str | None) -> None:
    if repo is None:
        raise RefusedError("failed to run git: fatal: not a git repository (or any of the parent directories): .git")
    if repo not in {f"{OWNER}/{NAME}", f"{shapes.HOST}/{OWNER}/{NAME}"}:
        raise RefusedError(f"GraphQL: Could not resolve to a Repository with the name '{repo}'. (repository)")


def _only(shape: Json, wanted: str) -> Json:
    fields = wanted.split(",")
    for field in fields:
        if field not in shape:
            known = "\n".join(f"  {name}" for name in sorted(shape))
            raise RefusedError(f'Unknown JSON field: "{field}"\nAvailable fields:\n{known}')
    return {field: shape[field] for field in fields}


def _number(selector: str | None) -> str:
    if selector is None:
        raise RefusedError("argument required when using the `--repo` flag")
    found = re.fullmatch(rf"(?:{re.escape(shapes.WEB)}/(?:pull|issues)/)?#?(\d+)(?:/.*)?", selector)
    return found[1] if found else selector


def _find_pull(call: Call, selector: str | None) -> Json:
    wanted = _number(selector)
    pulls = call.state["pulls"].values()
    found = next((each for each in pulls if wanted in {str(each["number"]), each["head"]}), None)
    if found is None:
        what = f"no pull requests found for branch {wanted!r}"
        if wanted.isdecimal():
            what = f"GraphQL: Could not resolve to a PullRequest with the number of {wanted}. (repository.pullRequest)"
        raise RefusedError(what)
    pull: Json = found
    return pull


def _body(call: Call, given: argparse.Namespace) -> str:
    if given.body_file is not None and given.body_file != "-":
        raise RefusedError("only --body-file - is scripted")
    return call.input if given.body_file == "-" else given.body or ""


# ---- commands --------------------------------------------------------------------------------------------------------


def _auth_status(call: Call, rest: list[str]) -> str:
    _parsed(rest, "--hostname", selector=False)
    return f"github.com\n  ✓ Logged in to github.com account {call.state['me']} (keyring)\n"


def _repo_view(_call: Call, rest: list[str]) -> str:
    given = _parsed(rest, "--json")
    _known_repository(given.selector or given.repo)
    shape = {
        "id": "R_1",
        "name": NAME,
        "nameWithOwner": f"{OWNER}/{NAME}",
        "url": shapes.WEB,
        "isFork": False,
        "owner": {"id": "O_1", "login": OWNER},
        "defaultBranchRef": {"name": "main"},
        "viewerPermission": "WRITE",
    }
    return _json(_only(shape, given.json))


def _issue_view(call: Call, rest: list[str]) -> str:
    given = _parsed(rest, "--json")
    _known_repository(given.repo)
    number = _number(given.selector)
    found = call.state["issues"].get(number)
    if found is None:
        raise RefusedError(
            f"GraphQL: Could not resolve to an issue or pull request with the number of {number}. (repository.issue)"
        )
    return _json(_only(shapes.issue(call.state, found), given.json))


def _comment(kind: str, path: str) -> Callable[[Call, list[str]], str]:
    def act(call: Call, rest: list[str]) -> str:
        given = _parsed(rest, "--body", "--body-file")
        _known_repository(given.repo)
        number = _number(given.selector)
        if number not in call.state[kind]:
            raise RefusedError(f"GraphQL: Could not resolve to an issue or pull request with the number of {number}.")
        call.state[kind][number]["comments"].append(added := note(call.state, call.state["me"], _body(call, given)))
        return f"{shapes.WEB}/{path}/{number}#issuecomment-{added['id']}\n"

    return act


def _pr_list(call: Call, rest: list[str]) -> str:
    given = _parsed(rest, "--head", "--base", "--state", "--limit", "--json", "--label", "--author", selector=False)
    _known_repository(given.repo)
    wanted = given.state or "open"
    found = []
    for pull in reversed(call.state["pulls"].values()):
        is_wanted = wanted == "all" or pull["state"] == wanted or (wanted == "closed" and pull["state"] == "merged")
        is_head = given.head is None or pull["head"] == given.head
        if is_wanted and is_head and (given.base is None or pull["base"] == given.base):
            found.append(_only(shapes.pull(call.state, call.remote, pull, set(given.json.split(","))), given.json))
    return _json(found[: int(given.limit or 30)])


def _pr_view(call: Call, rest: list[str]) -> str:
    given = _parsed(rest, "--json")
    _known_repository(given.repo)
    found = _find_pull(call, given.selector)
    return _json(_only(shapes.pull(call.state, call.remote, found, set(given.json.split(","))), given.json))


def _pr_create(call: Call, rest: list[str]) -> str:
    flags = ("--base", "--head", "--title", "--body", "--body-file", "--label")
    given = _parsed(rest, *flags, switches=("--draft", "--no-maintainer-edit"), selector=False)
    _known_repository(given.repo)
    head, base = given.head, given.base or "main"
    if not given.title:
        raise RefusedError(
            "must provide `--title` and `--body` (or `--fill` or `fill-first`) when not running interactively"
        )
    for pull in call.state["pulls"].values():
        if (pull["head"], pull["base"], pull["state"]) == (head, base, "open"):
            url = f"{shapes.WEB}/pull/{pull['number']}"
            raise RefusedError(f'a pull request for branch "{head}" into branch "{base}" already exists:\n{url}')
    if not head_of(call.remote, head):
        raise RefusedError(
            "pull request create failed: GraphQL: Head sha can't be blank, Base sha can't be blank (createPullRequest)"
        )
    if head_of(call.remote, head) == head_of(call.remote, base):
        raise RefusedError(
            f"pull request create failed: GraphQL: No commits between {base} and {head} (createPullRequest)"
        )
    more = {"draft": given.draft, "labels": given.label or [], "author": call.state["me"]}
    number = open_pull(call.state, title=given.title, body=_body(call, given), base=base, head=head, **more)
    return f"{shapes.WEB}/pull/{number}\n"


def _pr_edit(call: Call, rest: list[str]) -> str:
    given = _parsed(rest, "--title", "--body", "--body-file", "--base", "--add-label", "--remove-label")
    _known_repository(given.repo)
    found = _find_pull(call, given.selector)
    found["title"] = given.title or found["title"]
    found["base"] = given.base or found["base"]
    if given.body is not None or given.body_file is not None:
        found["body"] = _body(call, given)
    found["labels"] += given.add_label.split(",") if given.add_label else []
    found["labels"] = [each for each in found["labels"] if each not in (given.remove_label or "").split(",")]
    return f"{shapes.WEB}/pull/{found['number']}\n"


def _pr_ready(call: Call, rest: list[str]) -> str:
    given = _parsed(rest, switches=("--undo",))
    _known_repository(given.repo)
    _find_pull(call, given.selector)["draft"] = given.undo
    return ""


def _pr_close(call: Call, rest: list[str]) -> str:
    given = _parsed(rest)
    _known_repository(given.repo)
    _find_pull(call, given.selector)["state"] = "closed"
    return ""


def _pr_checks(call: Call, rest: list[str]) -> str:
    major, minor = (int(part) for part in call.state["gh_version"].split(".")[:2])
    if (major, minor) < (2, 50) and "--json" in rest:
        raise RefusedError("unknown flag: --json")
    given = _parsed(rest, "--json")
    _known_repository(given.repo)
    found = _find_pull(call, given.selector)
    runs = shapes.checks(call.state, call.remote, found)
    if not runs:
        raise RefusedError(f"no checks reported on the '{found['head']}' branch")
    return _json([_only(each, given.json) for each in runs])


def _run_view(call: Call, rest: list[str]) -> str:
    given = _parsed(rest, "--job", "--json", switches=("--log-failed", "--log"))
    _known_repository(given.repo)
    number = int(given.job) - 1_000_000 if given.job else int(given.selector)
    found = run_of(call.state, number)
    if found is None:
        raise RefusedError(
            "failed to get run: HTTP 404: Not Found (https://api.github.com/repos/acme/shop/actions/runs/1)"
        )
    if given.log_failed and found.is_green:
        return ""
    lines = found.log.splitlines()
    return "".join(f"{found.name}\tRun {found.name}\t2026-11-02T10:00:00.0000000Z {line}\n" for line in lines)


def _api(call: Call, rest: list[str]) -> str:
    parser = _Parser()
    parser.add_argument("endpoint")
    for names in (("--method", "-X"), ("--input",), ("--hostname",)):
        parser.add_argument(*names)
    for names in (("--raw-field", "-f"), ("--field", "-F"), ("--header", "-H")):
        parser.add_argument(*names, action="append", default=[])
    given = parser.parse_args(rest)
    if given.hostname not in {None, shapes.HOST}:
        raise RefusedError(NOT_LOGGED_IN, 4)
    fields: Json = dict(each.split("=", 1) for each in given.raw_field)
    for each in given.field:
        key, value = each.split("=", 1)
        fields[key] = call.input if value == "@-" else _magic(value)
    if given.input == "-":
        fields = json.loads(call.input)
    if given.endpoint == "graphql":
        return _graphql(call, fields if given.input else {"query": fields.pop("query"), "variables": fields})
    return _rest(call, given.endpoint.lstrip("/"), given.method or ("POST" if fields else "GET"), fields)


def _magic(value: str) -> object:
    if value in {"true", "false", "null"} or re.fullmatch(r"-?\d+", value):
        return json.loads(value)
    return value


def _graphql(call: Call, fields: Json) -> str:
    from tests.forge.github_graphql import graphql  # noqa: PLC0415 - slow to import, and few calls need it

    answered = graphql(call.state, call.remote, fields["query"], fields.get("variables") or {})
    if "errors" in answered:
        messages = "\n".join(f"gh: {error['message']}" for error in answered["errors"])
        raise RefusedError(messages, out=_json(answered))
    return _json(answered)


def _rest(call: Call, endpoint: str, method: str, fields: Json) -> str:
    state = call.state
    if endpoint == "user":
        return _json({"login": state["me"], "id": 1000, "type": "User"})
    if endpoint == "rate_limit":
        reset = int(state.get("limit_ends", time.time()))
        core = {"limit": 5000, "used": 5000, "remaining": 0 if reset > time.time() else 4999, "reset": reset}
        return _json({"resources": {"core": core, "graphql": core}, "rate": core})
    if found := re.fullmatch(rf"repos/{OWNER}/{NAME}/collaborators/([^/]+)/permission", endpoint):
        permission = state["people"].get(found[1], "none")
        if found[1] not in state["people"]:
            raise RefusedError("gh: Not Found (HTTP 404)", out=_json({"message": "Not Found", "status": "404"}))
        return _json({"permission": permission, "role_name": permission, "user": {"login": found[1]}})
    if found := re.fullmatch(rf"repos/{OWNER}/{NAME}/issues/(\d+)/comments", endpoint):
        place = state["pulls"].get(found[1]) or state["issues"].get(found[1])
        if place is not None and method == "POST":
            place["comments"].append(added := note(state, state["me"], fields["body"]))
            return _json(_rest_comment(added))
        if place is not None:
            return _json([_rest_comment(each) for each in place["comments"]])
    if found := re.fullmatch(rf"repos/{OWNER}/{NAME}/pulls/(\d+)", endpoint):
        pull = _find_pull(call, found[1])
        if method == "PATCH":
            pull |= {key: fields[key] for key in ("title", "body") if key in fields}
            pull["base"] = fields.get("base", pull["base"])
        return _json({"number": pull["number"], "title": pull["title"], "body": pull["body"], "state": pull["state"]})
    raise RefusedError("gh: Not Found (HTTP 404)", out=_json({"message": "Not Found", "status": "404"}))


def _rest_comment(found: Json) -> Json:
    user = {"login": found["author"], "type": "User"}
    return {"id": found["id"], "body": found["body"], "user": user, "created_at": found["at"]}


def _json(value: object) -> str:
    return json.dumps(value) + "\n"


COMMANDS: dict[tuple[str, ...], Callable[[Call, list[str]], str]] = {
    ("auth", "status"): _auth_status,
    ("repo", "view"): _repo_view,
    ("issue", "view"): _issue_view,
    ("issue", "comment"): _comment("issues", "issues"),
    ("pr", "list"): _pr_list,
    ("pr", "view"): _pr_view,
    ("pr", "create"): _pr_create,
    ("pr", "edit"): _pr_edit,
    ("pr", "ready"): _pr_ready,
    ("pr", "close"): _pr_close,
    ("pr", "comment"): _comment("pulls", "pull"),
    ("pr", "checks"): _pr_checks,
    ("run", "view"): _run_view,
    ("api",): _api,
}
