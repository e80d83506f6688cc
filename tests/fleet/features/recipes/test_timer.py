"""The units that `fleet init --timer` prints."""

from configparser import ConfigParser
from pathlib import Path

import pytest

from fleet.errors import UsageError
from fleet.features.recipes.verbs import timer_units


def units(root: Path) -> dict[str, str]:
    """Each unit by the name of its file."""
    parts = timer_units(root, key="THE_KEY", drain_minutes=10).split("# ~/.config/systemd/user/")[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


def test_both_units_name_repository_program_and_time() -> None:
    found = units(Path("/work/My%Shop"))
    assert list(found) == ["fleet-my-shop.service", "fleet-my-shop.timer"]
    service, timer = (ConfigParser(interpolation=None) for _ in found)
    service.read_string(found["fleet-my-shop.service"])
    timer.read_string(found["fleet-my-shop.timer"])
    assert service["Service"]["WorkingDirectory"] == "/work/My%%Shop"
    assert service["Service"]["ExecStart"].endswith("fleet resume --plain --yes")
    assert service["Service"]["TimeoutStopSec"] == "660"
    assert timer["Timer"]["OnCalendar"] == "*-*-* 22:00:00"


@pytest.mark.parametrize("path", ["/a b", "/a\nb", '/a"b', "/a\\b"])
def test_a_path_that_would_be_read_otherwise_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="systemd units can't contain"):
        timer_units(Path(path), key="K", drain_minutes=1)
