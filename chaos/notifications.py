"""Notifications with random kills: which messages a receiver gets when writer and sender are killed repeatedly.

    python -m chaos.notifications              200 kills
    python -m chaos.notifications --kills 20   fewer

A writer appends questions to a journal, one transaction each. A sender (`notifier.py` of the feature) sends to a real
receiver on loopback. Both are killed with SIGKILL after a random time and started again. At the end, every question
must have arrived, and none under two keys, so that a receiver that drops known keys acts once. Requests that repeat a
key are counted, too.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import anyio

from fleet.config.load import default_config
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.features.notify import notifier
from fleet.features.notify.outbox import Outbox
from fleet.features.notify.settings import Notify
from fleet.runs.journal import Journal, engine_lock
from fleet.runs.run_folder import RunFolder
from scripts.frame import MET, MISSED, command_line, exit_with, say
from tests.fleet.core.pretend import started

KILLS = 200
LONGEST_S = 0.5  # of a life
PAUSE_S = 0.05  # between two questions
END_S = 120.0


def configured() -> Notify:
    """One webhook, whose address is in the environment of the sender."""
    data = default_config().of(Notify).model_dump()
    return Notify.model_validate({**data, "channels": {"hook": {"kind": "webhook", "url_env": "HOOK"}}})


def in_child(work: Callable[[], None]) -> int:
    """Run a function in a forked process."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    finally:
        os._exit(0)


def receive(log: Path, port: int) -> None:
    """Take requests, and write each with its key to a file before it is answered."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            titles = [each["title"] for each in body["causes"]]
            line = json.dumps({"key": self.headers["idempotency-key"], "try": self.headers["fleet-try"], "of": titles})
            with log.open("a") as file:
                file.write(f"{line}\n")
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            del format, args

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def write(folder: RunFolder, most: int) -> None:
    """Ask questions, one after the other, as the engine of the run."""
    with engine_lock(folder.journal), Journal(folder.journal) as journal:
        asked = len(folder.state().questions)
        while asked < most:
            asked += 1
            journal.append([f.QuestionAsked(at=time.time(), about=None, question=f"number {asked}?")])
            time.sleep(PAUSE_S)
        time.sleep(END_S)


def play(kills: int, seed: int) -> dict[str, int]:
    assert aiohttp  # loaded once, so that a life is spent on sending
    notifier.POLL_S = 0.01  # one that looks rarely is seldom killed in the middle of a delivery
    chance = random.Random(seed)  # noqa: S311 - a repeatable experiment
    with TemporaryDirectory(prefix="fleet-notifications-") as name:
        folder, log, port = RunFolder(Path(name) / "r"), Path(name) / "received", 20_000 + os.getpid() % 10_000
        with Journal.create(folder.journal) as journal:
            first = f.EngineStarted(at=time.time(), epoch=1, pid=1, host="here", version="1")
            journal.append([started(Policy(), None), first])
        Outbox(folder.path, create=True).close()
        log.touch()
        notify, environ = configured(), {"HOOK": f"http://127.0.0.1:{port}/"}
        receiver = in_child(lambda: receive(log, port))
        most = kills * 10
        try:
            for _ in range(kills // 2):
                pair = [
                    in_child(lambda: write(folder, most)),
                    in_child(lambda: anyio.run(notifier.send_notifications, folder, notify, environ)),
                ]
                for pid in chance.sample(pair, 2):
                    time.sleep(chance.uniform(0, LONGEST_S))
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            anyio.run(_finish, folder, notify, environ)
            return _judge(folder, log, kills // 2 * 2)
        finally:
            os.kill(receiver, signal.SIGKILL)
            os.waitpid(receiver, 0)


async def _finish(folder: RunFolder, notify: Notify, environ: dict[str, str]) -> None:
    """Run `fleet notify watch` until every notification is sent."""
    until = time.monotonic() + END_S
    while time.monotonic() < until:
        await notifier.send_notifications(folder, notify, environ, once=True)
        with Outbox(folder.path) as outbox:
            if outbox.pending("hook") is None:
                return


def _judge(folder: RunFolder, log: Path, kills: int) -> dict[str, int]:
    received = [json.loads(line) for line in log.read_text().splitlines()]
    keys: dict[str, set[str]] = {}
    with Outbox(folder.path) as outbox:
        causes = {each.key: each.causes for each in outbox.messages()}
    for each in received:
        for cause in causes[each["key"]]:
            keys.setdefault(cause, set()).add(each["key"])
    asked = {f"question:{id_}" for id_ in folder.state().questions}
    repeated = Counter(each["key"] for each in received)
    return {
        "kills": kills,
        "questions": len(asked),
        "messages": len(causes),
        "lost": len(asked - set(keys)),
        "sent twice (two keys)": sum(len(each) > 1 for each in keys.values()),
        "requests that repeat a key": sum(repeated.values()) - len(repeated),
        "of these not marked as a further try": sum(
            count - len({each["try"] for each in received if each["key"] == key}) for key, count in repeated.items()
        ),
    }


def main() -> int:
    parser = command_line("chaos.notifications", __doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help=f"by default {KILLS}")
    result = play(parser.parse_args().kills, seed=1)
    say(*(f"{name:<36} {value}" for name, value in result.items()))
    return MISSED if result["lost"] or result["sent twice (two keys)"] else MET


if __name__ == "__main__":
    exit_with(main)
