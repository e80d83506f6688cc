"""A shell that stays at the gate of a box, and runs one command after another at the manager's word.

It says how each ended. Then it waits until whatever is left of it is gone, empties the places where it may have left
files, and says whether that is all; where it is not, the box has to go. All run as one user: what keeps commands from
the shell is the filter of system calls and a `/proc` that is read-only. They can end the shell, and with it the box;
then nobody has an answer from it.
"""

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from anyio import move_on_after, wait_readable

from fleet.points import reached
from worktrees.process import READY, REFUSED, Child, Finished

LONGEST = 4_000  # bytes of a command; the shell reads them one by one
CODE, CLEAN = re.compile(rb"(\d+)\n"), b"done\n"
PLAIN = re.compile(r"[A-Z_]+=[\w.]*", re.ASCII)

# In a shell, away from where worktrees are mounted: say that we are there; then, for each pair of lines, become a shell
# ("$@") with these variables that runs this command, and say how it ended. Then end what is left of it until there are
# only the box's first process and we, and remove what is left in the places named. In the end say whether that is all:
# something may not go, a place may be closed now, a kind of memory may outlast its process. An end of the lines is the
# end.
SERVE = (
    f"cd / && printf {READY.decode()} >&0 || exit {REFUSED}; "
    "alone() { [ $# -le 2 ]; }; "
    "while IFS= read -r given && IFS= read -r word; do "
    'word=$(printf "%b." "$word"); '
    '(exec </dev/null; cd @ROOT@ || exit; [ -z "$given" ] || export $given; exec "$@" "${word%.}"); '
    'echo "$?" >&0; said=done; tries=0; '
    "until kill -KILL -1 2>/dev/null; alone /proc/[0-9]*; do "
    'tries=$((tries + 1)); [ "$tries" -lt 500 ] || { said=left; break; }; done; '
    'for left in @LEFT@; do case "$left" in @KEPT@) continue ;; esac; '
    '[ ! -e "$left" ] && [ ! -L "$left" ] || { rm -rf -- "$left" 2>/dev/null || said=left; }; done; '
    'for left in @PLACES@; do [ -r "$left" ] && [ -w "$left" ] && [ -x "$left" ] || said=left; done; '
    "[ -r /dev/pts/ptmx ] && [ -w /dev/pts/ptmx ] || said=left; "
    "for left in shm sem msg; do [ -r /proc/sysvipc/$left ] && { read -r _ && read -r _; } </proc/sysvipc/$left "
    "&& said=left; done; "
    'echo "$said" >&0; done'
)
TIDY_S = 5.0  # how long that may take; then the box is not used again


@dataclass(frozen=True, slots=True)
class Order:
    """A command to run, and how long it may take."""

    command: str
    timeout_s: float
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether it can be given to a shell that serves."""
        short = len(self.command.encode("utf-8", "surrogateescape")) <= LONGEST
        return short and "\0" not in self.command and all(map(PLAIN.fullmatch, self._pairs()))

    @property
    def lines(self) -> bytes:
        """The variables, and the command for `printf %b`."""
        line = self.command.replace("\\", "\\\\").replace("\n", "\\n")
        return f"{' '.join(self._pairs())}\n{line}\n".encode("utf-8", "surrogateescape")

    def _pairs(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.environment.items()]


def serving(root: str, places: Iterable[str], kept: Iterable[str]) -> str:
    """What the shell runs. It empties these folders behind each command, but for what is kept."""
    listed = tuple(places)
    patterns = (f"{place}/{pattern}" for place in listed for pattern in ("*", ".[!.]*", "..?*"))
    words = {"@ROOT@": root, "@PLACES@": " ".join(listed), "@LEFT@": " ".join(patterns), "@KEPT@": " | ".join(kept)}
    script = SERVE
    for word, meant in words.items():
        script = script.replace(word, meant)
    return script


async def serve(child: Child, order: Order) -> tuple[Finished | None, bool]:
    """How a command ended, and whether another may be given. No answer where the shell that should tell is gone."""
    if child.gate is None:
        return None, False
    began = monotonic()
    try:
        child.gate.sendall(order.lines)
        reached("a command runs")
        said, timed_out = await _line(child.gate, order.timeout_s)
        seconds = monotonic() - began
        code, clean = CODE.match(said), False
        if code is None and not timed_out:
            return None, False
        if code is not None:
            rest, _ = await _line(child.gate, TIDY_S, said[code.end() :])
            clean = rest == CLEAN
    except ConnectionError:
        return None, False
    [kept] = child.take()
    done = Finished(
        exit_code=-9 if code is None else int(code[1]),
        stdout=kept.content(),
        stderr=b"",
        timed_out=code is None,
        cut=kept.dropped > 0,
        seconds=seconds,
    )
    return done, clean


async def _line(gate: socket.socket, limit_s: float, said: bytes = b"") -> tuple[bytes, bool]:
    """What the shell says next, to the end of a line; and whether its time was over before that."""
    with move_on_after(limit_s) as limit:
        while b"\n" not in said:
            await wait_readable(gate)
            some = gate.recv(64)
            if not some:
                return b"", False
            said += some
    return said, limit.cancelled_caught
