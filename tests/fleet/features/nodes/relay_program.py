"""A command line that gives the stream behind a socket: `python -I -S ray_relay.py SOCKET [LINE]` sends a line first.

Or says why there is none: `ray_relay.py --because TEXT`. Knows the standard library only, so that it starts at once.
"""

import os
import socket
import sys
import threading


def relay(path: str, first: str) -> None:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(path)
        stream.sendall(first.encode())

        def pass_on() -> None:
            while data := os.read(0, 65536):
                stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)

        threading.Thread(target=pass_on, daemon=True).start()
        while received := stream.recv(65536):
            rest = memoryview(received)
            while rest:
                rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    place, *line = sys.argv[1:]
    if place == "--because":
        sys.exit(line[0])
    relay(place, "".join(f"{each}\n" for each in line))
