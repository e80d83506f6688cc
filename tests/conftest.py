"""What holds for all tests: their order is random, its seed is printed, and the longest files come first."""

import gc

import pytest

from tests.effort import load_profile

LONGEST_FIRST = ("tests/docs/", "tests/corpus/", "tests/chaos/", "tests/e2e/", "tests/attacks/", "tests/contract/")
"""Started last, a file of these folders would keep one process busy while the others have nothing left to do."""

COLLECTED = (700, 10, 1000)
"""As `gc.set_threshold` takes them: all objects are looked at a hundredth as often as by default, at most."""


def pytest_configure(config: pytest.Config) -> None:
    load_profile(thorough=not config.getoption("markexpr"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-corpus", action="store_true", help="record again what every face shows of the corpus")
    parser.addoption("--ssh", metavar="COMMAND", default="", help="reach nodes through this, such as `ssh HOST`")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the order of pytest-randomly, except for the folders that come first."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    folders = [place for place, folder in enumerate(LONGEST_FIRST) if item.nodeid.startswith(folder)]
    return folders[0] if folders else len(LONGEST_FIRST)


def pytest_collection_finish() -> None:
    """Have the garbage collector seldom go through everything that is imported by now.

    It is not frozen: to count what is frozen, as `RunFolder.state` does, would take 60 ms each time.
    """
    gc.collect()
    gc.set_threshold(*COLLECTED)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Pytest collects garbage five times at its end."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The header that pytest-randomly prints the seed in is left out with `-q`."""
    seed = config.getoption("randomly_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"random order: --randomly-seed={seed} repeats it")
