"""`fleet init --timer`: units for systemd that continue the latest run every evening. Nothing is installed."""

import shutil
import sys
from pathlib import Path

from fleet.core.base.ids import slug
from fleet.errors import UsageError

AT = "22:00"
UNITS = """\
# ~/.config/systemd/user/{name}.service
[Unit]
Description=fleet in {repository}

[Service]
Type=exec
WorkingDirectory={repository}
# the latest run of the repository; for new work: {fleet} run --plan PLAN --plain --yes
ExecStart={fleet} resume --plain --yes
# holds {key}=...; only you may read it
EnvironmentFile=-%h/.config/fleet/environment
# the first signal lets agents finish (limits.drain_minutes)
KillMode=mixed
TimeoutStopSec={stop_s}
# 1: something did not land; 2 where nothing was left to do
SuccessExitStatus=1 2

# ~/.config/systemd/user/{name}.timer
[Unit]
Description=fleet in {repository}, every evening

[Timer]
OnCalendar=*-*-* {at}:00
Persistent=true

[Install]
WantedBy=timers.target

# then: systemctl --user daemon-reload && systemctl --user enable --now {name}.timer
# and, for a machine where you are not logged in at that time: loginctl enable-linger"""


def timer_units(root: Path, *, key: str, drain_minutes: float) -> str:
    """The units as one text. Raises `UsageError` for a path that they can't hold."""
    repository = str(root)
    program = shutil.which("fleet") or f"{Path(sys.executable).parent / 'fleet'}"
    for path in (repository, program):
        if not path.isprintable() or any(mark in path for mark in "\"'\\ "):
            raise UsageError(f"{path}: its spaces or quotes have no place in a unit of systemd; use another path to it")
    values = {"repository": repository.replace("%", "%%"), "fleet": program.replace("%", "%%")}
    return UNITS.format(name=f"fleet-{slug(root.name)}", key=key, stop_s=int(drain_minutes * 60) + 60, at=AT, **values)
