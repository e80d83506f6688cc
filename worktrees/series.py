"""Commands that run one after another in one box: what a box costs is paid once for all of them.

The shell at the gate stays, and takes one command at a time over the gate. It says how each ended, after it has killed
whatever is left of it and emptied the places where it may have left files. So nothing goes on from a command into the
next but what it did to the worktree. All run as one user: what keeps them from the shell is the filter of system calls
and a `/proc` that is read-only, so without the filter no box is shared. They can end the shell, and with it the box;
then nobody has an answer from it.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from time import monotonic

from anyio import move_on_after, wait_readable

from fleet.points import reached
from worktrees.process import READY, REFUSED, Child, Finished, Launch, born

LONGEST = 4_000  # bytes of a command; the shell reads them one by one
END_S = 5.0  # how long a box may take to end when there is nothing more to do

# In a shell: say that we are there; then, for each word, become a shell that runs it ("$@" and the command), end what
# is left of it, and say how it ended. What is left in the places named is removed. An end of the words is the end.
SERVE = (
    f"printf {READY.decode()} >&0 || exit {REFUSED}; "
    'while IFS= read -r word; do word=$(printf "%b." "$word"); '
    '(exec </dev/null; exec "$@" "${word%.}"); code=$?; kill -KILL -1 2>/dev/null; '
    "for left in @PLACES@; do "
    '[ ! -e "$left" ] && [ ! -L "$left" ] || rm -rf -- "$left" 2>/dev/null; done; '
    'echo "$code" >&0; done'
)


@dataclass(frozen=True, slots=True)
class Order:
    """A command to run, and how long it may take."""

    command: str
    timeout_s: float

    @property
    def words(self) -> bytes:
        """As one line, for `printf %b`."""
        return self.command.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-8", "surrogateescape") + b"\n"


def fits(command: str) -> bool:
    """Whether a command can be given to a box that others share."""
    return "\0" not in command and len(command.encode("utf-8", "surrogateescape")) <= LONGEST


def serving(places: Iterable[str]) -> str:
    """What the shell runs; it empties these folders behind each command."""
    patterns = (f"{place}/{pattern}" for place in places for pattern in ("*", ".[!.]*", "..?*"))
    return SERVE.replace("@PLACES@", " ".join(patterns))


Answer = Callable[[Finished], Awaitable[None]]


async def run_series(launch: Launch, orders: Iterable[Order], answer: Answer, *, cap: int) -> None:
    """Run commands as they come, until there are no more, or the box has ended before its time.

    Then the one that was taken last has no answer, or one that says that its time was over.
    """
    async with born(launch, cap) as child:
        await child.reach_gate(launch.init)
        if child.ready:
            for order in orders:
                async with launch.turn or nullcontext():
                    done = await _carried_out(child, order)
                if done is not None:
                    await answer(done)
                if done is None or done.timed_out:
                    break
            else:
                child.close_gate()
                with move_on_after(END_S):
                    await wait_readable(child.pidfd)


async def _carried_out(child: Child, order: Order) -> Finished | None:
    """None where the shell that should tell is gone."""
    if child.gate is None:
        return None
    said, began = bytearray(), monotonic()
    try:
        child.gate.sendall(order.words)
        reached("a command runs")
        with move_on_after(order.timeout_s) as limit:
            while not said.endswith(b"\n"):
                await wait_readable(child.gate)
                some = child.gate.recv(16)
                if not some:
                    return None
                said += some
    except ConnectionError:
        return None
    seconds, [kept] = monotonic() - began, child.take()
    if not limit.cancelled_caught and not said.strip().isdigit():
        return None
    return Finished(
        exit_code=-9 if limit.cancelled_caught else int(said),
        stdout=kept.content(),
        stderr=b"",
        timed_out=limit.cancelled_caught,
        cut=kept.dropped > 0,
        seconds=seconds,
    )
