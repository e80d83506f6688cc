"""Programs that only tests need: where `make setup` unpacked them, or this system's own."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / ".venv" / "tools"
PROGRAMS = ("usr/lib/chromium", "usr/bin")  # a wrapper in the second leads to where the first would be installed
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib/chromium", "lib/x86_64-linux-gnu")
LIMIT_S = 300


def tool(name: str) -> str:
    """The path of a program; where it is missing, what brings it."""
    places = (*(str(TOOLS / folder) for folder in PROGRAMS), os.environ["PATH"])
    found = shutil.which(name, path=os.pathsep.join(places))
    assert found, f"{name} is missing: `make setup` unpacks it into {TOOLS}; on Debian: apt-get install {name}"
    return found


def environment(home: Path) -> dict[str, str]:
    """What such a program is given: its own libraries, a home of its own, and nothing of whoever runs the tests."""
    folders = [folder for name in LIBRARIES if (folder := TOOLS / name).is_dir()]
    folders += [
        below for folder in folders for below in folder.iterdir() if below.is_dir() and below.name == "pulseaudio"
    ]
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}


def run_tool(name: str, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool(name), *arguments],
        env=environment(home),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=LIMIT_S,
    )
