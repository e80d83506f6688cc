"""What a command costs before it does anything: heavy libraries stay out until they are needed."""

import subprocess
import sys

import pytest

HEAVY = ("anthropic", "textual", "git", "prometheus_client", "aiohttp")

_SCRIPT = """
import sys
sys.argv = ["fleet", *sys.argv[1:]]
from fleet.cli import main
code = 0
try:
    main()
except SystemExit as end:
    code = end.code or 0
print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}))
sys.exit(code)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]], ids=" ".join)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.splitlines()[-1].split()[1:]
    assert "typer" in loaded
    assert [name for name in HEAVY if name in loaded] == []
