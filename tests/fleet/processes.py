"""Other processes for tests: Python snippets with a clean environment, that never outlive their test."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 300


def clean_environment(**more: str) -> dict[str, str]:
    """An environment without the keys, settings, proxies and home of the person who runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": "/nonexistent", "PYTHONSAFEPATH": "1", **more}


def python(script: str, *arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a snippet to its end."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False, timeout=LIMIT_S
    )


@contextmanager
def running(script: str, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A snippet that runs beside the test; its output is line by line, its end is certain."""
    command = [sys.executable, "-uc", script, *map(str, arguments)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line a process says."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")
