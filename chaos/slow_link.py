"""Simulates a slow link in front of a command: delays and throttles its standard streams in both directions.

    python -m chaos.slow_link 0.2 1000000 sh start       200 ms later, and at most 1 Mbit/s

Replaces `tc netem`, which some kernels lack.
"""

import os
import subprocess
import sys
import time
from collections import deque
from threading import Condition, Thread

PART = 4 * 1024
WAITING = 64
"""Maximum number of parts in transit. A sender waits at this limit, like at a connection's window."""


def pass_on(source: int, sink: int, delay_s: float, bytes_per_s: float) -> None:
    """Pass on data with the delay and speed of the link, until its end."""
    parts = deque[tuple[float, bytes]]()
    changed = Condition()

    def write() -> None:
        data = b"."
        while data:
            with changed:
                changed.wait_for(lambda: bool(parts))
                due, data = parts.popleft()
                changed.notify_all()
            time.sleep(max(due - time.monotonic(), 0))
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(sink, rest) :]
        os.close(sink)

    writer = Thread(target=write, daemon=True)
    writer.start()
    free_at, data = time.monotonic(), b"."
    while data:
        data = os.read(source, PART)
        free_at = max(free_at, time.monotonic()) + len(data) / bytes_per_s
        with changed:
            changed.wait_for(lambda: len(parts) < WAITING)
            parts.append((free_at + delay_s, data))
            changed.notify_all()
    writer.join()


def main() -> int:
    delay_s, bits_per_s, *command = sys.argv[1:]
    link = float(delay_s), float(bits_per_s) / 8
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    Thread(target=pass_on, args=(0, process.stdin.fileno(), *link), daemon=True).start()
    pass_on(process.stdout.fileno(), 1, *link)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
