"""How many tests ran, as the summaries of runners say; each text is what the runner printed."""

import pytest

from fleet.core.verdicts.summaries import has_no_tests, summary


@pytest.mark.parametrize(
    ("output", "count", "failed"),
    [
        ("..\n----\nRan 2 tests in 0.000s\n\nOK\n", 2, 0),
        ("F.\nRan 2 tests in 0.001s\n\nFAILED (failures=1)\n", 2, 1),
        ("Ran 5 tests in 0.001s\n\nFAILED (failures=1, errors=2, skipped=1)\n", 4, 3),
        ("Ran 1 test in 0.000s\n\nOK (skipped=1)\n", 0, 0),
        ("# tests 3\n# suites 0\n# pass 2\n# fail 1\n# cancelled 0\n", 3, 1),
        ("\u2139 tests 2\n\u2139 suites 0\n\u2139 pass 2\n\u2139 fail 0\n", 2, 0),
        ("Test Suites: 1 failed, 1 total\nTests:       1 failed, 2 passed, 3 total\nTime: 1 s\n", 3, 1),
        ("\x1b[2m      Tests \x1b[22m \x1b[1m\x1b[32m2 passed\x1b[39m\x1b[22m\x1b[90m (2)\x1b[39m\n", 2, 0),
        ("      Tests  1 failed | 2 passed (3)\n", 3, 1),
        (
            "ok  \texample.org/a\t0.002s\nFAIL\texample.org/b [build failed]\n?   \texample.org/c\t[no test files]\n",
            2,
            1,
        ),
        ("=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\nok  \tx\t0.1s\n", 2, 1),
        ("--- FAIL: TestA (0.00s)\n--- FAIL: TestB (0.00s)\nFAIL\nFAIL\tx\t0.1s\n", 1, 1),
        (
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n\ntest result: FAILED. 0 passed; 1 failed; 0",
            3,
            1,
        ),
        ("  3 passing (10ms)\n  1 pending\n  2 failing\n", 5, 2),
        ("[INFO] Tests run: 5, Failures: 1, Errors: 1, Skipped: 0\n", 5, 2),
        ("5 examples, 1 failure\n", 5, 1),
        ("80% tests passed, 1 tests failed out of 5\n", 5, 1),
        ("OK (5 tests, 9 assertions)\n", 5, 0),
    ],
)
def test_a_summary_is_counted(output: str, count: int, failed: int) -> None:
    found = summary(output)
    assert found is not None
    assert (found.count, found.failed, found.number_passed) == (count, failed, count - failed)


@pytest.mark.parametrize("output", ["", "all fine\n", "Ran out of tests\n", "ok\n", "2 passed\n", "Tests: none\n"])
def test_without_a_summary_nothing_is_counted(output: str) -> None:
    assert summary(output) is None


@pytest.mark.parametrize(
    "output",
    [
        "Ran 0 tests in 0.000s\n\nNO TESTS RAN\n",
        "collected 0 items\n\n==== no tests ran in 0.01s ====\n",
        "No tests found, exiting with code 1\n",
        "No test files found, exiting with code 1\n",
        "# tests 0\n# pass 0\n",
    ],
)
def test_a_runner_says_that_it_found_nothing(output: str) -> None:
    assert has_no_tests(output)
    assert not has_no_tests("Ran 2 tests in 0.1s\n\nFAILED (failures=1)\n")
