"""A shell that stays at the gate of a box, and runs one command after another at the manager's word.

It says how each ended, after it has killed whatever is left of it and emptied the places where it may have left files;
and if it left what only goes with the box: System V's memory, or a place that is closed.
All run as one user: what keeps commands from the shell is the filter of system calls and a `/proc` that is read-only.
They can end the shell, and with it the box; then nobody has an answer from it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from anyio import move_on_after, wait_readable

from fleet.points import reached
from worktrees.process import READY, REFUSED, Child, Finished

LONGEST = 4_000  # bytes of a command; the shell reads them one by one
LEFT = "left"
ANSWER = re.compile(rb"(\d+)((?: left)*)\n")
PLAIN = re.compile(r"[A-Z_]+=[\w.]*", re.ASCII)

# In a shell, away from where worktrees are mounted: say that we are there; then, for each pair of lines, become a shell
# ("$@") with these variables that runs this command, end what is left of it, and say how it ended. What is left in the
# places named is removed; it is said if one of them is closed now, or if there is memory or the like that System V lets
# outlast a process. An end of the lines is the end.
SERVE = (
    f"cd / && printf {READY.decode()} >&0 || exit {REFUSED}; "
    "while IFS= read -r given && IFS= read -r word; do "
    'word=$(printf "%b." "$word"); '
    '(exec </dev/null; cd @ROOT@ || exit; [ -z "$given" ] || export $given; exec "$@" "${word%.}"); '
    "code=$?; kill -KILL -1 2>/dev/null; "
    'for left in @LEFT@; do case "$left" in @KEPT@) continue ;; esac; '
    '[ ! -e "$left" ] && [ ! -L "$left" ] || rm -rf -- "$left" 2>/dev/null; done; '
    f'for left in @PLACES@; do [ -r "$left" ] && [ -w "$left" ] && [ -x "$left" ] || code="$code {LEFT}"; done; '
    "for left in shm sem msg; do [ -r /proc/sysvipc/$left ] && { read -r _ && read -r _; } </proc/sysvipc/$left "
    f'&& code="$code {LEFT}"; done; '
    'echo "$code" >&0; done'
)


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
    said, began = bytearray(), monotonic()
    try:
        child.gate.sendall(order.lines)
        reached("a command runs")
        with move_on_after(order.timeout_s) as limit:
            while not said.endswith(b"\n"):
                await wait_readable(child.gate)
                some = child.gate.recv(64)
                if not some:
                    return None, False
                said += some
    except ConnectionError:
        return None, False
    seconds, [kept] = monotonic() - began, child.take()
    answer, timed_out = ANSWER.fullmatch(said), limit.cancelled_caught
    if answer is None and not timed_out:
        return None, False
    done = Finished(
        exit_code=-9 if answer is None or timed_out else int(answer[1]),
        stdout=kept.content(),
        stderr=b"",
        timed_out=timed_out,
        cut=kept.dropped > 0,
        seconds=seconds,
    )
    return done, not timed_out and answer is not None and not answer[2]
