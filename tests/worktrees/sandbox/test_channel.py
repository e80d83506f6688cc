"""Reading the reports of pytest, also hostile and broken ones."""

from pathlib import Path

import pytest
from anyio import fail_after, to_thread

from fleet.core.facts.facts import RanTests
from fleet.core.plans.plan import Criterion
from tests.worktrees.conftest import OpenBench
from worktrees.sandbox.channel import CAP, junit_tests, report_channel

HEAD = "<?xml version='1.0'?>"
REPORT = f"""{HEAD}<testsuites><testsuite>
<testcase file="t.py" classname="t" name="a"/>
<testcase file="t.py" classname="t" name="b[1-x]"/>
<testcase file="t.py" classname="t" name="b[2]"><skipped/></testcase>
<testcase file="t.py" classname="t" name="c"><failure>no</failure></testcase>
<testcase file="t.py" classname="t" name="d"><skipped/></testcase>
<testcase file="t.py" classname="" name="e"><error/></testcase>
<testcase file="t.py" classname="t" name="f"><system-out>&lt;?xml</system-out></testcase>
</testsuite></testsuites>"""


async def ran_tests(at: Path, text: str) -> RanTests | None:
    async with report_channel(at) as channel:
        with fail_after(30):
            await to_thread.run_sync(channel.path.write_text, text)
    assert not channel.path.exists()
    return junit_tests(channel.reports())


async def test_a_function_is_known_by_its_name_whatever_its_parameters(tmp_path: Path) -> None:
    tests = await ran_tests(tmp_path, REPORT)
    assert tests == RanTests(
        ran=frozenset({"t.py::t::a", "t.py::t::b", "t.py::t::c", "t.py::t::f"}),
        passed=frozenset({"t.py::t::a", "t.py::t::b", "t.py::t::f"}),
        failed=2,
    )


async def test_several_reports_count_together(tmp_path: Path) -> None:
    other = f'{HEAD}<testsuites><testcase file="u.py" classname="u" name="z"/></testsuites>'
    tests = await ran_tests(tmp_path, REPORT + other)
    assert tests is not None
    assert {"u.py::u::z", "t.py::t::a"} <= tests.passed


ENTITIES = f'{HEAD}<!DOCTYPE x [<!ENTITY a "aaaa">]><testsuites><testcase name="&a;"/></testsuites>'


@pytest.mark.parametrize("text", ["", "hello", REPORT[:-20], ENTITIES, REPORT + " " * CAP])
async def test_an_incomplete_report_is_ignored(tmp_path: Path, text: str) -> None:
    assert await ran_tests(tmp_path, text) is None


async def test_pytest_is_asked_for_a_report_only_where_tests_are_expected(open_bench: OpenBench) -> None:
    prints = Criterion(criterion="prints", run='echo "[$PYTEST_ADDOPTS]"')
    for asks in (True, False):
        async with open_bench(expected_tests=asks) as bench, bench.worktrees.lease(bench.base) as lease:
            run = await lease.check(prints)
        assert ("--junitxml=/run/report-" in run.output) is asks
        assert run.tests is None
        assert "[]" in run.output or asks


async def test_the_ids_of_tests_are_not_stored(open_bench: OpenBench) -> None:
    pretends = Criterion(criterion="says", run=f'at=${{PYTEST_ADDOPTS#*=}}; echo "{HEAD}<x/>" > ${{at%% *}}')
    async with open_bench() as bench, bench.worktrees.lease(bench.base) as lease:
        run = await lease.check(pretends)
    assert (run.tests, run.ran_tests) == (0, RanTests())
    assert "ran_tests" not in run.model_dump_json()
