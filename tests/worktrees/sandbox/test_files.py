"""Results that a check's command leaves in files: as they should be, stale, broken and hostile."""

import json
from collections.abc import Mapping

import pytest

from fleet.core.facts.facts import CheckRun, RanTests
from fleet.core.plans.plan import Criterion
from tests.worktrees.conftest import OpenBench
from worktrees.sandbox.channel import LONGEST, MOST, junit_tests, sarif_findings

CASE = "<testsuites><testcase classname='pkg.Sums' name='{}'/></testsuites>"


def leaves(command: str, tests: str = "junit:out/*.xml") -> Criterion:
    return Criterion(criterion="leaves results", run=command, tests=tests, fails_before=False)


async def results(open_bench: OpenBench, *criteria: Criterion) -> list[CheckRun]:
    async with open_bench() as bench, bench.worktrees.lease(bench.base) as lease:
        return [await lease.check(criterion) for criterion in criteria]


async def test_the_files_that_a_command_leaves_are_its_report_whatever_its_runner(open_bench: OpenBench) -> None:
    writes = "".join(f'echo "{CASE.format(name)}" >out/{name}.xml; ' for name in "ab")
    [run] = await results(open_bench, leaves(f'mkdir -p out; {writes} echo "[$PYTEST_ADDOPTS]"; exit 3'))
    assert (run.exit_code, run.output, run.tests) == (3, "[]\n", 2)
    assert run.ran_tests is not None
    assert run.ran_tests.passed == {"::pkg.Sums::a", "::pkg.Sums::b"}


async def test_a_file_from_before_the_check_is_no_result_of_it(open_bench: OpenBench) -> None:
    writes = f'mkdir -p out; echo "{CASE.format("old")}" >out/a.xml'
    first, second = await results(open_bench, leaves(writes), leaves("ls out"))
    assert (first.tests, second.ran_tests, second.output) == (1, None, "")


@pytest.mark.parametrize(
    "command",
    [
        "true",
        "mkdir -p out/a.xml",
        "mkdir out; mkfifo out/a.xml",
        "mkdir out; ln -s /etc/shadow-that-is-not-there out/a.xml",
        "mkdir out; echo '<testsuites>' >out/a.xml",
        "mkdir out; head -c 40000000 /dev/zero >out/a.xml",
    ],
    ids=["none", "a folder", "a pipe", "a link", "broken", "too long"],
)
async def test_what_is_no_report_is_none(open_bench: OpenBench, command: str) -> None:
    [run] = await results(open_bench, leaves(command))
    assert (run.passed, run.ran_tests, run.tests) == (True, None, None)


async def test_a_command_with_quotes_and_lines_is_run_as_it_is(open_bench: OpenBench) -> None:
    [run] = await results(open_bench, leaves('for word in "a b" \'c\'\ndo echo "$word"; done # "'))
    assert (run.exit_code, run.output) == (0, "a b\nc\n")


# ---- SARIF -----------------------------------------------------------------------------------------------------------


def sarif(*findings: Mapping[str, object]) -> bytes:
    return json.dumps({"version": "2.1.0", "runs": [{"results": findings}]}).encode()


def finding(file: str = "a.py", rule: str = "E1", text: str = "no", line: int = 1, **more: object) -> dict[str, object]:
    place = {"artifactLocation": {"uri": file}, "region": {"startLine": line}}
    return {"ruleId": rule, "message": {"text": text}, "locations": [{"physicalLocation": place}], **more}


def found(*reports: bytes) -> set[str] | None:
    run = sarif_findings(reports)
    return None if run is None or run.findings is None else set(run.findings)


def test_a_finding_is_known_by_file_rule_and_text_and_counted() -> None:
    assert found(sarif(finding(), finding(line=9)), sarif(finding(file="b.py"))) == {
        "a.py: E1: no",
        "a.py: E1: no (1)",
        "b.py: E1: no",
    }


def test_what_passed_or_is_gone_is_no_finding_and_what_the_code_suppresses_is_one() -> None:
    others = (finding(kind="pass"), finding(baselineState="absent"))
    assert found(sarif(*others)) == set()
    assert found(sarif(finding(suppressions=[{"kind": "inSource"}]))) == {"a.py: E1: no"}


def test_a_finding_without_a_place_or_a_rule_is_one() -> None:
    bare = {"message": {"id": "m"}, "rule": {"id": "R"}}
    assert found(sarif(bare)) == {": R: m"}


def test_a_long_finding_is_shortened_and_on_one_line() -> None:
    (text,) = found(sarif(finding(text="a\nb " * 1_000))) or {""}
    assert len(text) == LONGEST
    assert "\n" not in text


@pytest.mark.parametrize(
    "report",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"runs": 3}',
        b'{"runs": [null]}',
        b'{"runs": [{"results": [{}]}]}',
        b'{"runs": [{"results": ["x"]}]}',
        b'{"runs": [{"results": [{"message": {}, "locations": [{}]}]}]}',
        b'{"runs": [{"results": {"a": 1}}]}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_what_is_not_sarif_says_nothing(report: bytes) -> None:
    assert found(report) is None
    assert found(sarif(), report) is None


def test_without_a_report_there_are_no_findings_and_too_many_are_none() -> None:
    assert found() is None
    same = b'{"message": {"text": "x"}},' * (MOST + 1)
    assert found(b'{"runs": [{"results": [' + same[:-1] + b"]}]}") is None


def test_junit_without_the_first_line_of_xml_is_read() -> None:
    assert junit_tests([CASE.format("a").encode()]) == RanTests(
        ran=frozenset({"::pkg.Sums::a"}), passed=frozenset({"::pkg.Sums::a"})
    )
