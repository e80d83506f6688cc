"""Out of the box: to files, secrets, other processes and the network."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from anyio import EndOfStream
from anyio.abc import ByteStream

from tests.attacks.conftest import CANARY, Arena, bare
from tests.worktrees.conftest import OpenBench

CONNECT = 'exec 3<>"/dev/tcp/$1/$2"'
SEND = 'echo ask > "/dev/udp/$1/$2"'
UNIX = 'python -c \'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1].replace("@", chr(0)))\' "$1"'


@contextmanager
def victim(**env: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **env})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_1_files_of_the_home_the_system_and_the_state_are_read(arena: Arena) -> None:
    script = 'cat "$1"'
    assert (await arena.without(script, arena.secret)).output == CANARY
    assert CANARY not in (await arena.within(script, arena.secret)).output
    for hidden in (Path("/etc/shadow"), arena.home, Path("/var"), Path("/sys"), Path("/boot")):
        assert (await arena.within('test ! -e "$1" || test -z "$(ls -A "$1")"', hidden)).worked, hidden


async def test_2_keys_are_read_from_the_environment_of_processes(arena: Arena) -> None:
    with victim(API_KEY=CANARY) as process:
        script = 'cat "/proc/$1/environ" /proc/[0-9]*/environ 2>/dev/null'
        assert CANARY in (await arena.without(script, process.pid)).output
        assert CANARY not in (await arena.within(script, process.pid)).output


async def test_2_keys_are_read_from_the_environment_of_the_box_itself(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", CANARY)
    script = "env; cat /proc/1/environ /proc/self/environ"
    assert CANARY.encode() in bare("sh", "-c", script).stdout
    assert CANARY not in (await arena.within(script)).output


TAKE = """
for file in "$1"/*/mine.txt "$1"/overlays/leases/*/upper/mine.txt; do cat "$file" && echo taken > "$file"; done
"""


@pytest.mark.parametrize(("sandbox", "kind"), [("none", "pool"), ("bubblewrap", "pool"), ("bubblewrap", "overlay")])
async def test_3_another_worktree_is_read_and_changed(open_bench: OpenBench, sandbox: str, kind: str) -> None:
    async with (
        open_bench(sandbox=sandbox, lease=kind) as bench,
        bench.worktrees.lease(bench.base) as other,
        bench.worktrees.lease(bench.base) as attacker,
    ):
        await other.workspace.write("mine.txt", CANARY.encode())
        slots = next(bench.settings.state_dir.glob("stores/*/slots/r1"))
        attack = await attacker.workspace.run(f"set -- '{slots}'; {TAKE}", timeout_s=20)
        content = await other.workspace.read("mine.txt")
    reached = sandbox == "none"
    assert (CANARY in attack.output) == reached, attack.output
    assert content == (b"taken\n" if reached else CANARY.encode())


async def test_4_processes_outside_are_killed(arena: Arena) -> None:
    with victim() as process:
        assert (await arena.without('kill -9 "$1"', process.pid)).worked
        assert process.wait(30) == -9
    with victim() as process:
        assert not (await arena.within('kill -9 "$1"', process.pid)).worked
        await arena.within("kill -9 -1")
        assert process.poll() is None


def test_4_all_visible_processes_are_killed_without_a_namespace_between() -> None:
    """A namespace of its own plays the machine here: inside it there is no defence."""
    script = "sleep 600 & sh -c 'kill -9 -1'; wait $!; echo $?"
    sight = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
    done = subprocess.run([*sight, "sh", "-c", script], capture_output=True, timeout=60, check=True)
    assert done.stdout.split()[-1] == b"137"


async def test_5_the_network_is_reached(arena: Arena) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert (await arena.without(CONNECT, "127.0.0.1", port)).worked
        assert not (await arena.within(CONNECT, "127.0.0.1", port)).worked
    for address, number in (("169.254.169.254", 80), ("192.0.2.1", 443), ("::1", port)):
        assert not (await arena.within(CONNECT, address, number)).worked, address


async def test_5_a_datagram_such_as_a_question_for_a_name_gets_out(arena: Arena) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(30)
        port = listener.getsockname()[1]
        await arena.without(SEND, "127.0.0.1", port)
        assert listener.recv(100) == b"ask\n"
        listener.setblocking(False)
        await arena.within(SEND, "127.0.0.1", port)
        with pytest.raises(BlockingIOError):
            listener.recv(100)


@contextmanager
def unix_listener(name: str) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name.replace("@", "\0"))
        listener.listen(8)
        yield


async def test_6_a_socket_with_a_path_is_connected_to(arena: Arena) -> None:
    path = arena.elsewhere / "agent.sock"
    with unix_listener(str(path)):
        assert (await arena.without(UNIX, path)).worked
        assert not (await arena.within(UNIX, path)).worked


async def test_7_a_socket_without_a_path_is_connected_to(arena: Arena) -> None:
    name = f"@fleet-{os.getpid()}"
    with unix_listener(name):
        assert (await arena.without(UNIX, name)).worked
        assert not (await arena.within(UNIX, name)).worked


async def test_20_a_file_outside_is_taken_in_by_a_hard_link(arena: Arena) -> None:
    script = 'ln "$1" taken && cat taken; rm -f taken'
    assert CANARY in (await arena.without(script, arena.secret)).output
    result = await arena.within(script, arena.secret, shown=(arena.elsewhere,))
    assert CANARY not in result.output
    assert "cross-device" in result.output


async def test_43_a_cache_that_all_workers_use_is_poisoned(arena: Arena) -> None:
    cache = arena.elsewhere
    script = 'echo poison > "$1/secret"; echo more > "$1/more"; chmod 777 "$1"; mv "$1" "$1.old"'
    await arena.within(script, cache, shown=(cache,))
    assert sorted(path.name for path in cache.iterdir()) == ["secret"]
    assert arena.secret.read_text(encoding="utf-8") == CANARY
    await arena.without(script, cache)
    assert (arena.home / "elsewhere.old/secret").read_text(encoding="utf-8") == "poison\n"


@pytest.mark.parametrize("kind", ["overlay", "pool"])
async def test_43_what_the_set_up_made_is_poisoned_for_the_next_worker(open_bench: OpenBench, kind: str) -> None:
    changes = {"setup": "mkdir -p node_modules/left && echo good > node_modules/left/pad.js", "lease": kind}
    async with open_bench(**changes) as bench:
        async with bench.worktrees.lease(bench.base) as lease:
            poison = (
                "echo poison > node_modules/left/pad.js; echo more > node_modules/more.js; cat node_modules/left/pad.js"
            )
            assert (await lease.workspace.run(poison, timeout_s=20)).output == "poison\n"
        async with bench.worktrees.lease(bench.base) as lease:
            clean = await lease.workspace.run("cat node_modules/left/pad.js; ls node_modules", timeout_s=20)
            assert clean.output == "good\nleft\n"


LISTEN = 'IFS= read -r line; echo "heard: $line" > heard; read -r line'
"""An agent that waits for its operator."""
WITH_PIPE = """\
sleep 600 | bash -c "$1" &
until [ -s heard ]; do echo forged > /proc/$!/fd/0; sleep 0.05; done
"""
WITH_DIALOGUE = """\
exec 3<&0
bash -c "$1" <&3 &
echo forged > /proc/$!/fd/0
echo forged > /proc/$$/fd/0
echo tried >&3
until [ -s heard ]; do sleep 0.05; done
"""


async def test_56_an_agent_is_spoken_to_as_its_operator(arena: Arena) -> None:
    """With a pipe for its input whoever is in the box can speak to it; with the dialogue only the manager can."""

    async def operator(stream: ByteStream) -> None:
        assert await stream.receive() == b"tried\n"
        await stream.send(b"the operator\n")
        with suppress(EndOfStream):
            await stream.receive()

    heard = arena.tree / "heard"
    assert (await arena.without(WITH_PIPE, LISTEN)).worked
    assert heard.read_text() == "heard: forged\n"
    heard.unlink()
    tried = await arena.within(WITH_DIALOGUE, LISTEN, dialogue=operator)
    assert tried.output.count("No such device or address") == 2
    assert heard.read_text() == "heard: the operator\n"
