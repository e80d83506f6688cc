"""The tests in reports of JUnit's form, which nearly every runner can write. Their content is hostile."""

from collections.abc import Sequence
from xml.parsers import expat

from fleet.core.state.facts import RanTests

NOT_RUN, NOT_PASSED, FAILED = {"skipped", "error"}, {"skipped", "error", "failure"}, {"error", "failure"}


def junit_tests(reports: Sequence[bytes]) -> RanTests | None:
    """The tests in all reports; None without a report, or where one can't be parsed."""
    if not reports:
        return None
    ran, passed, failed = set[str](), set[str](), set[str]()
    try:
        for report in reports:
            _parse(report, ran, passed, failed)
    except (expat.ExpatError, ValueError):
        return None
    return RanTests(ran=frozenset(ran), passed=frozenset(passed), failed=len(failed))


def _parse(report: bytes, ran: set[str], passed: set[str], failed: set[str]) -> None:
    """Add the tests of one report by file, class and name, all the parameters of a function as one."""
    test, tags = "", set[str]()

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal test
        if tag == "testcase":
            tags.clear()
            full_name = "::".join(attributes.get(key, "") for key in ("file", "classname", "name"))
            test = full_name.partition("[")[0]
        tags.add(tag)

    def end(tag: str) -> None:
        if tag == "testcase":
            if not tags & NOT_RUN:
                ran.add(test)
            if not tags & NOT_PASSED:
                passed.add(test)
            if tags & FAILED:
                failed.add(test)

    def refuse(*_: object) -> None:
        raise ValueError("a report declares nothing")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.EntityDeclHandler = parser.StartDoctypeDeclHandler = refuse
    parser.Parse(report, True)
