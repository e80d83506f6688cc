"""What a host starts in place of `fleet node --stdio`: standard streams, joined to the socket of a test."""

import os
import socket
import sys
import threading

with socket.socket(socket.AF_UNIX) as stream:
    stream.connect(sys.argv[1])

    def pass_on() -> None:
        while data := os.read(0, 65536):
            stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)

    threading.Thread(target=pass_on, daemon=True).start()
    while received := stream.recv(65536):
        os.write(1, received)
