"""Both clients: what they ask, compared with what the real programs take, and what they make of the answers.

The cassettes hold flags and fields of `gh` 2.23 (its `--help`, and what it says of `--json`) and of `glab` 1.79 (its
documentation).
"""

import json
from pathlib import Path

import pytest

from fleet.core.base.forges import FORGES
from fleet.features.forge.forge import Check, Draft, Forge, ForgePlace
from fleet.features.forge.program import (
    ForgeError,
    NotFoundError,
    NotLoggedInError,
    Program,
    ProgramMissingError,
    RateLimitedError,
)
from fleet.features.parts import load_part
from tests.fleet.features.forge.recording import GITHUB, GITLAB, Recording, recording

CASSETTES = {
    name: json.loads((Path(__file__).parent / "cassettes" / file).read_text())
    for name, file in (("GitHub", "gh-2.23.0.json"), ("GitLab", "glab-1.79.json"))
}
NASTY = "--web\n$(id) `id` @ann \x1b[31m"
DRAFT = Draft(title="--web $(id)", body=NASTY, head_branch="fleet/x", base_branch="main")


@pytest.fixture(params=FORGES, ids=[each.prefix for each in FORGES])
def program(request: pytest.FixtureRequest) -> Recording:
    return recording(ForgePlace(request.param, request.param.host, "acme/shop"))


@pytest.fixture
def forge(program: Recording) -> Forge:
    return client_of(program)


def client_of(program: Program) -> Forge:
    client: Forge = load_part(program.place.kind.client)(program)
    return client


async def _use(forge: Forge) -> None:
    """Call every method once."""
    pull = await forge.pull(5)
    await forge.default_branch()
    await forge.may_write("dependabot[bot]")
    await forge.issue(12)
    await forge.pulls_of("fleet/x")
    await forge.open_pull(DRAFT)
    await forge.edit_pull(5, body=NASTY, base_branch="main")
    for check in await forge.checks(pull):
        await forge.log(check)
    await forge.threads(5)
    await forge.comments(5)
    await forge.comment(5, NASTY, thread="T1")
    await forge.comment(5, NASTY)


@pytest.mark.anyio
async def test_every_flag_and_field_is_one_that_the_real_program_has(forge: Forge, program: Recording) -> None:
    await _use(forge)
    cassette = CASSETTES[program.place.kind.name]
    wrong = []
    for call in program.calls:
        verb = call[0] if call[0] == "api" else " ".join(call[:2])
        flags = [argument.partition("=")[0] for argument in call if argument.startswith("--")]
        wrong += [f"{verb} {flag}" for flag in flags if flag not in cassette[verb]["flags"]]
        if "--json" in call:
            asked = call[call.index("--json") + 1].split(",")
            wrong += [f"{verb} --json {each}" for each in asked if each not in cassette[verb]["fields"]]
    assert wrong == []
    assert len(program.calls) > 10


@pytest.mark.anyio
async def test_what_others_wrote_is_never_an_argument_of_its_own(forge: Forge, program: Recording) -> None:
    await _use(forge)
    loose = [argument for call in program.calls for argument in call if "$(id)" in argument]
    assert loose in ([], ["--title=--web $(id)"])
    assert sum("$(id)" in text for text in program.inputs) >= 4


@pytest.mark.anyio
async def test_answers_become_values(forge: Forge) -> None:
    pull = await forge.pull(5)
    assert (pull.state, pull.is_draft, pull.head_branch, pull.is_cross_repository) == ("open", True, "fleet/x", False)
    assert await forge.default_branch() == "main"
    assert await forge.may_write("ann")
    issue = await forge.issue(12)
    assert (issue.title, issue.is_open, [each.body for each in issue.comments]) == ("Broken", True, ["Please."])
    assert [each.number for each in await forge.pulls_of("fleet/x")] == [5]
    assert await forge.pulls_of("fleet/y") == ()
    thread = (await forge.threads(5))[0]
    assert (thread.id, thread.path, thread.line, thread.is_resolved) == ("T1", "a.py", 3, False)
    assert "Please." in {comment.body for comment in await forge.comments(5)}
    failed = [check for check in await forge.checks(pull) if check.state == "failed"]
    assert [(check.job, check.sha) for check in failed] == [("22", "a" * 40)]
    assert (await forge.log(failed[0])).strip() == "1 failed"
    assert await forge.log(Check(name="deploy", state="failed", sha="a" * 40)) == ""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("exit_code", "output", "error"),
    [
        (4, "To get started with GitHub CLI, please run:  gh auth login", NotLoggedInError),
        (1, "glab: 401 Unauthorized (HTTP 401)", NotLoggedInError),
        (1, "HTTP 403: API rate limit exceeded for user ID 1.", RateLimitedError),
        (1, "glab: 429 Too Many Requests", RateLimitedError),
        (1, "GraphQL: Could not resolve to a PullRequest with the number of 5.", NotFoundError),
        (1, "glab: 404 Project Not Found (HTTP 404)", NotFoundError),
        (1, "error connecting to api.github.com", ForgeError),
        (-9, "", ForgeError),
    ],
)
async def test_an_error_says_what_to_do_and_holds_no_token(exit_code: int, output: str, error: type) -> None:
    token = "ghp_" + "a" * 36
    program = recording(ForgePlace(GITHUB, "github.com", "acme/shop"), fails=(exit_code, f"{output} {token}\x1b[31m"))
    with pytest.raises(error) as raised:
        await client_of(program).pull(5)
    assert type(raised.value) is error
    assert token not in str(raised.value)
    assert "\x1b" not in str(raised.value)
    if error is NotLoggedInError:
        assert "gh auth login --hostname github.com" in str(raised.value)


@pytest.mark.anyio
async def test_a_missing_program_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    program = Program(ForgePlace(GITLAB, "gitlab.com", "acme/shop"), {"PATH": str(tmp_path)})
    with pytest.raises(ProgramMissingError, match=r"glab.*install it from"):
        await client_of(program).pull(5)


@pytest.mark.anyio
async def test_a_program_starts_with_the_users_account_and_without_what_makes_it_loud(tmp_path: Path) -> None:
    script = tmp_path / "gh"
    script.write_text("#!/bin/sh\nenv; pwd; cat\n")
    script.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GH_TOKEN": "kept", "GH_DEBUG": "api", "GH_REPO": "evil/repo"}
    printed = await Program(ForgePlace(GITHUB, "github.com", "acme/shop"), environ).ask("pr", data=b"text on input")
    lines = printed.splitlines()
    assert {"GH_TOKEN=kept", "GH_PROMPT_DISABLED=1", "text on input"} <= set(lines)
    assert not {"GH_DEBUG=api", "GH_REPO=evil/repo"} & set(lines)
    assert str(Path.cwd()) not in lines
