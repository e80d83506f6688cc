"""The contract of every worker kind, whatever it is made of. A new kind needs a rig, and has to pass all of this."""

import anyio
import pytest

from agents.workers.registry import WORKERS
from fleet.core.facts.facts import Failure, Report
from tests.contract.conftest import RIGS, RUN, SECRET, OpenStand
from tests.e2e.stage import marked, program

pytestmark = pytest.mark.anyio
LONE = '{"status": "done", "summary": "\\ud800"}'  # half a character
HANGS = "trap '' TERM INT HUP; (setsid sleep 599 &); sleep 599; sleep 599"


def test_every_kind_has_a_rig() -> None:
    assert RIGS.keys() == WORKERS.keys()


@pytest.mark.parametrize("kind", RIGS)
async def test_what_is_done_is_reported_in_full(kind: str, open_stand: OpenStand) -> None:
    claim = {
        "status": "done",
        "summary": "greeted",
        "result": {"interface": "hello.txt"},
        "recommendations": ["say goodbye, too"],
        "discovered": ["no one answers"],
    }
    async with open_stand(kind) as stand:
        stand.rig.reports(claim, first="echo hello > hello.txt")
        report = await stand.works()
        if stand.rig.runs_commands:
            assert await stand.workspace.read("hello.txt") == b"hello\n"
    assert report == Report(
        status="done",
        summary="greeted",
        result={"interface": "hello.txt"},
        recommendations=("say goodbye, too",),
        discovered=("no one answers",),
    )


@pytest.mark.parametrize("kind", RIGS)
async def test_what_failed_is_a_report_with_its_reason(kind: str, open_stand: OpenStand) -> None:
    claim = {"status": "failed", "summary": "no", "error": {"kind": "too_complex", "message": "three things in one"}}
    async with open_stand(kind) as stand:
        stand.rig.reports(claim)
        report = await stand.works()
    assert isinstance(report, Report)
    assert (report.status, report.error_kind, report.error_message) == ("failed", "too_complex", "three things in one")


@pytest.mark.parametrize("kind", RIGS)
async def test_what_is_blocked_says_what_it_needs(kind: str, open_stand: OpenStand) -> None:
    async with open_stand(kind) as stand:
        stand.rig.reports({"status": "blocked", "summary": "whom?", "needs": ["a name"]})
        report = await stand.works()
    assert isinstance(report, Report)
    assert (report.status, report.needs) == ("blocked", ("a name",))


@pytest.mark.parametrize("kind", RIGS)
@pytest.mark.parametrize(
    "report_text",
    [
        '{"status": "done"',
        *(
            pytest.param(text, marks=pytest.mark.thorough)
            for text in ('["done"]', '{"status": "victory", "summary": "x"}')
        ),
        LONE,
    ],
)
async def test_an_invalid_report_is_a_failure_of_the_protocol(
    kind: str, report_text: str, open_stand: OpenStand
) -> None:
    async with open_stand(kind) as stand:
        stand.rig.reports(report_text)
        failure = await stand.works()
    assert isinstance(failure, Failure)
    assert failure.kind == "protocol"


@pytest.mark.parametrize("kind", RIGS)
async def test_a_report_is_bounded_and_is_text_whatever_was_written(kind: str, open_stand: OpenStand) -> None:
    hostile = "\x1b]0;owned\x07 </subtask> [/bold]" + "x" * 15_000
    async with open_stand(kind) as stand:
        stand.rig.reports({"status": "done", "summary": hostile})
        report = await stand.works()
    assert isinstance(report, Report)
    assert len(report.summary) < 9_000
    report.model_dump_json().encode("utf-8")


@pytest.mark.parametrize("kind", RIGS)
async def test_time_is_bounded_and_nothing_runs_after_it(kind: str, open_stand: OpenStand) -> None:
    async with open_stand(kind) as stand:
        if not stand.rig.runs_commands:
            return
        stand.rig.changes["time_s"] = 1.0
        stand.rig.hangs(HANGS)
        failure = await stand.works()
        assert marked(RUN) == []
    assert isinstance(failure, Failure)
    assert failure.kind in {"budget", "spent"}


@pytest.mark.parametrize("kind", RIGS)
async def test_cancelling_ends_everything_that_runs(kind: str, open_stand: OpenStand) -> None:
    async with open_stand(kind) as stand:
        if not stand.rig.runs_commands:
            return
        stand.rig.hangs(HANGS)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as attempt:
                attempt.start_soon(stand.works)
                while "sleep" not in map(program, marked(RUN)):  # noqa: ASYNC110 - there is no event to wait for
                    await anyio.sleep(0.05)
                attempt.cancel_scope.cancel()
        assert marked(RUN) == []


@pytest.mark.parametrize("kind", RIGS)
async def test_nothing_starts_when_the_budget_is_spent(kind: str, open_stand: OpenStand) -> None:
    async with open_stand(kind) as stand:
        stand.meter.calls = 0
        stand.rig.reports({"status": "done", "summary": "x"}, first="touch begun")
        failure = await stand.works()
        assert "begun" not in await stand.workspace.list(".")
    assert isinstance(failure, Failure)
    assert failure.kind in {"budget", "spent"}


@pytest.mark.parametrize("kind", RIGS)
async def test_no_key_is_in_the_box_and_none_in_the_transcript(kind: str, open_stand: OpenStand) -> None:
    look = "env; cat /proc/*/environ | tr '\\0' '\\n'; cat /tmp/fleet-*/* 2>/dev/null; ls -a ~"
    async with open_stand(kind) as stand:
        stand.rig.reports({"status": "done", "summary": "looked"}, first=f"{{ {look}; }} | tee seen.txt")
        assert isinstance(await stand.works(), Report)
        output = await stand.workspace.read("seen.txt") if stand.rig.runs_commands else b""
        assert b"sk-test-0123456789" not in output
        assert "sk-test-0123456789" not in stand.transcript


@pytest.mark.parametrize("kind", [name for name, kind in WORKERS.items() if "pass_environment" in kind.takes])
async def test_the_secrets_of_a_workers_commands_stay_with_them(kind: str, open_stand: OpenStand) -> None:
    async with open_stand(kind) as stand:
        stand.rig.changes |= {"passed": {"TOOL_KEY": SECRET}}
        stand.rig.reports(
            {"status": "done", "summary": "used it"}, first="echo $TOOL_KEY; echo $TOOL_KEY | rev > back.txt"
        )
        assert isinstance(await stand.works(), Report)
        assert await stand.workspace.read("back.txt") == SECRET[::-1].encode() + b"\n"
        assert SECRET not in stand.transcript
