"""What is made of a runner's report, and of what is none."""

from pathlib import Path

import pytest
from anyio import fail_after, to_thread

from fleet.core.facts import RanTests
from fleet.core.plan import Criterion
from tests.worktrees.conftest import OpenBench
from worktrees.heard import CAP, channel

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


async def said(at: Path, text: str) -> RanTests | None:
    async with channel(at) as made:
        with fail_after(30):
            await to_thread.run_sync(made.path.write_text, text)
    assert not made.path.exists()
    return made.heard()


async def test_a_function_is_known_by_its_name_whatever_its_parameters(tmp_path: Path) -> None:
    heard = await said(tmp_path, REPORT)
    assert heard == RanTests(
        ran=frozenset({"t.py::t::a", "t.py::t::b", "t.py::t::c", "t.py::t::f"}),
        passed=frozenset({"t.py::t::a", "t.py::t::b", "t.py::t::f"}),
    )


async def test_several_reports_count_together(tmp_path: Path) -> None:
    other = f'{HEAD}<testsuites><testcase file="u.py" classname="u" name="z"/></testsuites>'
    heard = await said(tmp_path, REPORT + other)
    assert heard is not None
    assert {"u.py::u::z", "t.py::t::a"} <= heard.passed


ENTITIES = f'{HEAD}<!DOCTYPE x [<!ENTITY a "aaaa">]><testsuites><testcase name="&a;"/></testsuites>'


@pytest.mark.parametrize("text", ["", "hello", REPORT[:-20], ENTITIES, REPORT + " " * CAP])
async def test_what_is_no_whole_report_says_nothing(tmp_path: Path, text: str) -> None:
    assert await said(tmp_path, text) is None


async def test_a_check_hears_nothing_where_nothing_is_asked(open_bench: OpenBench) -> None:
    prints = Criterion(criterion="prints", run='echo "[$PYTEST_ADDOPTS]"')
    for asks in (True, False):
        async with open_bench(expected_tests=asks) as bench, bench.hands.lease(bench.base) as lease:
            [run] = await lease.check([prints])
        assert ("--junitxml=/run/report-" in run.output) is asks
        assert run.tests is None
        assert "[]" in run.output or asks


async def test_ids_are_never_written_down(open_bench: OpenBench) -> None:
    pretends = Criterion(criterion="says", run=f'at=${{PYTEST_ADDOPTS#*=}}; echo "{HEAD}<x/>" > ${{at%% *}}')
    async with open_bench() as bench, bench.hands.lease(bench.base) as lease:
        [run] = await lease.check([pretends])
    assert (run.tests, run.heard) == (0, RanTests())
    assert "heard" not in run.model_dump_json()
