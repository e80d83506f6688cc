"""OpenSSH servers made for a trial: keys and configurations of their own, and nothing of whoever runs it.

    with ssh_server(folder) as ssh:    # one on loopback; `ssh` is the command line that runs a command through it

A server of a user who is not root lets only that user in, which is enough. `openssh-server` has to be installed.
"""

import os
import pwd
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SSHD = "/usr/sbin/sshd"
PATIENCE_S = 20.0
CONFIGURATION = """\
HostKey {folder}/host-key
AuthorizedKeysFile {folder}/user-key.pub
PidFile {folder}/{name}.pid
StrictModes no
UsePAM no
PasswordAuthentication no
SetEnv SHLVL=2 PYTHONPATH={path}
"""
"""With this log level, a login shell does not read user files."""
CLIENT = """\
Host loopback
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/user-key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known-hosts
  GlobalKnownHostsFile /dev/null
  BatchMode yes
  LogLevel ERROR
"""


def make_keys(folder: Path) -> None:
    """Create the keys of SSH servers and clients."""
    for name in ("host-key", "user-key"):
        argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}")
        subprocess.run(argv, check=True, capture_output=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)


def write_configuration(folder: Path, name: str, *more: str) -> Path:
    """The configuration of a server, whose keys are in the folder."""
    file = folder / f"{name}.sshd"
    text = CONFIGURATION.format(folder=folder, name=name, path=Path.cwd())
    file.write_text(text + "".join(f"{line}\n" for line in more), encoding="utf-8")
    return file


@contextmanager
def ssh_server(folder: Path) -> Iterator[str]:
    """Yield the command line that reaches a server on loopback. Its host is called `loopback` in `folder/client`."""
    make_keys(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    key = (folder / "host-key.pub").read_text().split()[:2]
    (folder / "known-hosts").write_text(f"[127.0.0.1]:{port} {' '.join(key)}\n")
    client = folder / "client"
    client.write_text(CLIENT.format(port=port, user=pwd.getpwuid(os.geteuid()).pw_name, folder=folder))
    file = write_configuration(folder, "loopback", "ListenAddress 127.0.0.1", f"Port {port}")
    log = folder / "loopback.log"
    with log.open("wb") as out, subprocess.Popen([SSHD, "-D", "-e", "-f", str(file)], stdout=out, stderr=out) as server:
        try:
            _wait_listening(server, port, log)
            yield shlex.join(("ssh", "-F", str(client), "loopback"))
        finally:
            server.terminate()


def _wait_listening(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while server.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"the SSH server does not start:\n{log.read_text(errors='replace')[-2000:]}")
