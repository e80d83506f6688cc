"""`glab` of ours: the argument lists of GitLab's program, answered from a scripted forge. It refuses the rest."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from typing import NoReturn
from urllib.parse import parse_qs, quote, urlsplit

from tests.forge import gitlab_shapes as shapes
from tests.forge.answering import Call, RefusedError, answer
from tests.forge.scripted_ci import check_runs, run_of
from tests.forge.scripted_forge import NAME, OWNER, Json, head_of, note, open_pull

FAULTS = {
    "network": RefusedError(
        'Get "https://gitlab.com/api/v4/user": dial tcp: lookup gitlab.com: no such host\n'
        "check your internet connection or status.gitlab.com."
    ),
    "not_logged_in": RefusedError("glab: 401 Unauthorized (HTTP 401)", out=json.dumps({"message": "401 Unauthorized"})),
    "rate_limit": RefusedError("glab: HTTP 429", out="Retry later\n"),
    "secondary_rate_limit": RefusedError(
        "glab: This endpoint has been requested too many times. Try again later. (HTTP 429)",
        out=json.dumps({"message": {"error": "This endpoint has been requested too many times. Try again later."}}),
    ),
    "server": RefusedError("glab: HTTP 502"),
}
PROJECT = rf"projects/(?:{re.escape(quote(f'{OWNER}/{NAME}', safe=''))}|1)"


class _Parser(argparse.ArgumentParser):
    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise RefusedError(f"ERROR: Unknown flag: {message}")


def main() -> None:
    answer("glab", _perform, FAULTS, lambda _call, kind: FAULTS[kind])


def _perform(call: Call) -> str:
    arguments = call.arguments
    if arguments == ["--version"]:
        return "glab 1.80.4 (2026-01-01)\n"
    for words, act in COMMANDS.items():
        if tuple(arguments[:2]) == words:
            return act(call, arguments[2:])
    if arguments[:1] == ["api"]:
        return _api(call, arguments[1:])
    raise RefusedError(f'ERROR: Unknown command {" ".join(arguments[:2])!r} for "glab".')


def _parsed(
    rest: Sequence[str], *flags: str, switches: Sequence[str] = (), selector: bool = True
) -> argparse.Namespace:
    parser = _Parser()
    for name in (*flags, "--repo"):
        short = {"--repo": "-R", "--output": "-F", "--source-branch": "-s", "--message": "-m"}.get(name)
        parser.add_argument(name, *([short] if short else []))
    for name in switches:
        parser.add_argument(name, action="store_true")
    if selector:
        parser.add_argument("selector")
    given = parser.parse_args(list(rest))
    if hasattr(given, "repo") and given.repo not in {f"{OWNER}/{NAME}", shapes.WEB}:
        raise RefusedError("404 Not Found")
    return given


def _request(call: Call, number: str) -> Json:
    found: Json | None = call.state["pulls"].get(number)
    if found is None:
        raise RefusedError("404 Not Found", out=_json({"message": "404 Not found"}))
    return found


# ---- commands --------------------------------------------------------------------------------------------------------


def _auth_status(call: Call, _rest: list[str]) -> str:
    return f"gitlab.com\n  ✓ Logged in to gitlab.com as {call.state['me']}\n"


def _issue_view(call: Call, rest: list[str]) -> str:
    given = _parsed(rest, "--output")
    found = call.state["issues"].get(given.selector)
    if found is None:
        raise RefusedError("404 Not Found")
    return _json(shapes.issue(call.state, found))


def _mr_list(call: Call, rest: list[str]) -> str:
    flags = ("--source-branch", "--target-branch", "--output", "--per-page")
    given = _parsed(rest, *flags, switches=("--all", "--closed", "--merged"), selector=False)
    wanted = "merged" if given.merged else "closed" if given.closed else "open"
    found = [
        shapes.merge_request(call.state, call.remote, each)
        for each in reversed(call.state["pulls"].values())
        if (given.all or each["state"] == wanted) and given.source_branch in {None, each["head"]}
    ]
    return _json(found)


def _mr_view(call: Call, rest: list[str]) -> str:
    given = _parsed(rest, "--output")
    found = _request(call, given.selector)
    return _json(shapes.merge_request(call.state, call.remote, found, pipeline=True))


def _mr_create(call: Call, rest: list[str]) -> str:
    flags = ("--source-branch", "--target-branch", "--title", "--description", "--label")
    given = _parsed(rest, *flags, switches=("--draft", "--yes"), selector=False)
    fields = {
        "source_branch": given.source_branch,
        "target_branch": given.target_branch,
        "title": f"Draft: {given.title}" if given.draft else given.title,
        "description": given.description,
    }
    return f"{_open(call, fields)['web_url']}\n"


def _mr_note(call: Call, rest: list[str]) -> str:
    given = _parsed(rest, "--message")
    found = _request(call, given.selector)
    found["comments"].append(added := note(call.state, call.state["me"], given.message))
    return f"{shapes.WEB}/-/merge_requests/{given.selector}#note_{added['id']}\n"


def _open(call: Call, fields: Json) -> Json:
    head, base = fields["source_branch"], fields["target_branch"]
    for each in call.state["pulls"].values():
        if (each["head"], each["base"], each["state"]) == (head, base, "open"):
            message = f"Another open merge request already exists for this source branch: !{each['number']}"
            raise RefusedError(f"glab: {message} (HTTP 409)", out=_json({"message": [message]}))
    if not head_of(call.remote, head):
        raise RefusedError(
            'glab: The source branch "" does not exist (HTTP 400)', out=_json({"message": "no source branch"})
        )
    draft = fields["title"].startswith("Draft: ")
    number = open_pull(
        call.state, title=fields["title"], body=fields.get("description") or "", base=base, head=head, draft=draft
    )
    return shapes.merge_request(call.state, call.remote, _request(call, str(number)))


# ---- REST ------------------------------------------------------------------------------------------------------------


def _api(call: Call, rest: list[str]) -> str:
    parser = _Parser()
    parser.add_argument("endpoint")
    for names in (("--method", "-X"), ("--input",), ("--hostname",)):
        parser.add_argument(*names)
    for names in (("--raw-field", "-f"), ("--field", "-F"), ("--header", "-H")):
        parser.add_argument(*names, action="append", default=[])
    given = parser.parse_args(rest)
    if given.hostname not in {None, shapes.HOST}:
        raise FAULTS["not_logged_in"]
    fields: Json = dict(each.split("=", 1) for each in (*given.raw_field, *given.field))
    fields |= {key: call.input for key, value in fields.items() if value == "@-"}
    if given.input == "-":
        if "Content-Type: application/json" not in given.header:
            raise RefusedError("glab: HTTP 415", out=_json({"error": "The provided content-type '' is not supported."}))
        fields = json.loads(call.input)
    address = urlsplit(given.endpoint.lstrip("/"))
    method = given.method or ("POST" if fields else "GET")
    query = {key: values[-1] for key, values in parse_qs(address.query).items()}
    for pattern, wanted, act in ENDPOINTS:
        if wanted == method and (found := re.fullmatch(pattern, address.path)):
            answered = act(call, list(found.groups()), fields | query)
            return answered if isinstance(answered, str) else _json(_paged(answered, query))
    raise RefusedError("glab: 404 Not Found (HTTP 404)", out=_json({"error": "404 Not Found"}))


def _paged(answered: object, query: Json) -> object:
    if not isinstance(answered, list):
        return answered
    size, page = min(100, int(query.get("per_page", 20))), int(query.get("page", 1))
    return answered[(page - 1) * size : page * size]


def _members(call: Call, _groups: list[str], fields: Json) -> object:
    return [
        {**shapes.user(call.state, login), "access_level": shapes.LEVELS[level]}
        for login, level in call.state["people"].items()
        if level in shapes.LEVELS and fields.get("query", "") in login
    ]


def _member(call: Call, groups: list[str], _fields: Json) -> object:
    found = [each for each in json.loads(_json(_members(call, [], {}))) if str(each["id"]) == groups[0]]
    if not found:
        raise RefusedError("glab: 404 Not found (HTTP 404)", out=_json({"message": "404 Not found"}))
    return found[0]


def _merge_requests(call: Call, _groups: list[str], fields: Json) -> object:
    return [
        shapes.merge_request(call.state, call.remote, each)
        for each in reversed(call.state["pulls"].values())
        if fields.get("source_branch") in {None, each["head"]}
        and fields.get("state") in {None, "all", shapes.STATES[each["state"]]}
    ]


def _edit(call: Call, groups: list[str], fields: Json) -> object:
    found = _request(call, groups[0])
    found["title"] = fields.get("title", found["title"])
    found["body"] = fields.get("description", found["body"])
    found["base"] = fields.get("target_branch", found["base"])
    found["labels"] += [each for each in fields.get("add_labels", "").split(",") if each]
    found["state"] = {"close": "closed", "reopen": "open"}.get(fields.get("state_event", ""), found["state"])
    return shapes.merge_request(call.state, call.remote, found)


def _notes(kind: str, noteable: str) -> Callable[[Call, list[str], Json], object]:
    def act(call: Call, groups: list[str], _fields: Json) -> object:
        place = call.state[kind].get(groups[0])
        if place is None:
            raise RefusedError("glab: 404 Not found (HTTP 404)", out=_json({"message": "404 Not found"}))
        in_threads = [
            shapes.note(call.state, each, noteable, thread)
            for thread in place.get("threads", [])
            for each in thread["comments"]
        ]
        return [*(shapes.note(call.state, each, noteable) for each in place["comments"]), *in_threads]

    return act


def _add_note(kind: str, noteable: str) -> Callable[[Call, list[str], Json], object]:
    def act(call: Call, groups: list[str], fields: Json) -> object:
        place = call.state[kind][groups[0]]
        place["comments"].append(added := note(call.state, call.state["me"], fields["body"]))
        return shapes.note(call.state, added, noteable)

    return act


def _discussions(call: Call, groups: list[str], _fields: Json) -> object:
    return shapes.discussions(call.state, _request(call, groups[0]))


def _reply(call: Call, groups: list[str], fields: Json) -> object:
    found = _request(call, groups[0])
    thread = next((each for each in found["threads"] if each["id"] == groups[1]), None)
    if thread is None:
        raise RefusedError(
            "glab: 404 Discussion Not Found (HTTP 404)", out=_json({"message": "404 Discussion Not Found"})
        )
    thread["comments"].append(added := note(call.state, call.state["me"], fields["body"]))
    return shapes.note(call.state, added, "MergeRequest", thread)


def _resolve(call: Call, groups: list[str], fields: Json) -> object:
    thread = next(each for each in _request(call, groups[0])["threads"] if each["id"] == groups[1])
    thread["resolved"] = fields["resolved"] in {True, "true"}
    return next(each for each in shapes.discussions(call.state, _request(call, groups[0])) if each["id"] == groups[1])


def _jobs(call: Call, groups: list[str], _fields: Json) -> object:
    shapes_by_pull = call.state.get("pipelines", {})
    number = shapes_by_pull.get(groups[0])
    if number is None:
        raise RefusedError("glab: 404 Not found (HTTP 404)", out=_json({"message": "404 Not found"}))
    return [shapes.job(each) for each in check_runs(call.state, call.remote, _request(call, str(number)))]


def _trace(call: Call, groups: list[str], _fields: Json) -> object:
    found = run_of(call.state, int(groups[0]) - 1_000_000)
    if found is None:
        raise RefusedError("glab: 404 Not found (HTTP 404)", out=_json({"message": "404 Not found"}))
    return found.log + "\n"


def _json(value: object) -> str:
    return json.dumps(value)


COMMANDS: dict[tuple[str, str], Callable[[Call, list[str]], str]] = {
    ("auth", "status"): _auth_status,
    ("issue", "view"): _issue_view,
    ("mr", "list"): _mr_list,
    ("mr", "view"): _mr_view,
    ("mr", "create"): _mr_create,
    ("mr", "note"): _mr_note,
}
REQUEST, ISSUE = rf"{PROJECT}/merge_requests/(\d+)", rf"{PROJECT}/issues/(\d+)"
ENDPOINTS: tuple[tuple[str, str, Callable[[Call, list[str], Json], object]], ...] = (
    (r"user", "GET", lambda call, _groups, _fields: shapes.user(call.state, call.state["me"])),
    (
        *(r"users", "GET"),
        lambda call, _groups, fields: [
            shapes.user(call.state, login) for login in call.state["people"] if login == fields.get("username")
        ],
    ),
    (rf"{REQUEST}/discussions/([^/]+)", "PUT", _resolve),
    (PROJECT, "GET", lambda _call, _groups, _fields: shapes.project()),
    (ISSUE, "GET", lambda call, groups, _fields: shapes.issue(call.state, call.state["issues"][groups[0]])),
    (rf"{ISSUE}/notes", "GET", _notes("issues", "Issue")),
    (rf"{ISSUE}/notes", "POST", _add_note("issues", "Issue")),
    (rf"{PROJECT}/merge_requests", "GET", _merge_requests),
    (rf"{PROJECT}/merge_requests", "POST", lambda call, _groups, fields: _open(call, fields)),
    (
        *(REQUEST, "GET"),
        lambda call, groups, _fields: shapes.merge_request(
            call.state, call.remote, _request(call, groups[0]), pipeline=True
        ),
    ),
    (REQUEST, "PUT", _edit),
    (rf"{REQUEST}/notes", "GET", _notes("pulls", "MergeRequest")),
    (rf"{REQUEST}/notes", "POST", _add_note("pulls", "MergeRequest")),
    (rf"{REQUEST}/discussions", "GET", _discussions),
    (rf"{REQUEST}/discussions/([^/]+)/notes", "POST", _reply),
    (
        *(rf"{REQUEST}/pipelines", "GET"),
        lambda call, groups, _fields: shapes.pipelines(call.state, call.remote, _request(call, groups[0])),
    ),
    (rf"{PROJECT}/pipelines/(\d+)/jobs", "GET", _jobs),
    (rf"{PROJECT}/jobs/(\d+)/trace", "GET", _trace),
    (rf"{PROJECT}/members/all", "GET", _members),
    (rf"{PROJECT}/members/all/(\d+)", "GET", _member),
)
