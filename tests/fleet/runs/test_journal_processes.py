"""The journal between processes: kills, readers, clients and holders, all of them real."""

import os
import signal
from pathlib import Path

import pytest

from fleet.core.facts import facts as f
from fleet.core.history.evolve import Follower
from fleet.runs.journal import Journal, JournalError, JournalLockedError, engine_lock, holder
from tests.fleet.core.pretend import replayed, started
from tests.fleet.processes import line_of, python, running

WRITER = """
import sys
from pathlib import Path
from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
with Journal(Path(sys.argv[1])) as journal:
    number = 0
    while True:
        group = [f.WarningNoted(at=number, text=f"{number}.{part} " + "x" * 500) for part in range(3)]
        journal.append(group)
        print(number, flush=True)
        number += 1
"""

HOLDER = """
import sys
from pathlib import Path
from fleet.runs.journal import engine_lock
with engine_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

READER = """
import sys
from pathlib import Path
from time import sleep
from fleet.core.history.evolve import Follower
from fleet.runs.journal import Journal
with Journal(Path(sys.argv[1])) as journal:
    follower = Follower(lambda before, fact, state: print(fact.kind, len(state.warnings), flush=True))
    while True:
        follower.catch_up(journal)
        sleep(0.01)
"""

ASKER = """
import sys
from pathlib import Path
from fleet.runs.run_folder import RunFolder
from fleet.errors import FleetError
try:
    RunFolder(Path(sys.argv[1]).parent).state()
except FleetError as error:
    sys.exit(str(error))
"""

CLIENT = """
import sys
from pathlib import Path
from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
with Journal(Path(sys.argv[1])) as journal:
    for number in range(20):
        journal.ask(f.Paused(at=number, by=sys.argv[2]))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "r" / "journal.db"
    with Journal.create(path) as journal:
        journal.append([started()])
    return path


@pytest.mark.parametrize("groups", [1, 7, 40])
def test_a_kill_in_the_middle_of_writing_loses_nothing_that_append_returned_from(path: Path, groups: int) -> None:
    with running(WRITER, path) as writer:
        said = [line_of(writer) for _ in range(groups)]
        writer.send_signal(signal.SIGKILL)
        assert writer.stdout is not None
        rest = [line for line in writer.stdout.read().split("\n") if line]
        writer.wait()
    returned = int([*said, *rest][-1]) + 1
    with Journal(path) as journal:
        facts = journal.facts()
        assert replayed(fact for _, fact in facts) is not None
        texts = [fact.text.split(" ")[0] for _, fact in facts if isinstance(fact, f.WarningNoted)]
        assert len(texts) >= returned * 3
        assert texts == [f"{number}.{part}" for number in range(len(texts) // 3) for part in range(3)]
        journal.append([f.WarningNoted(at=0, text="one more")])


def test_readers_in_another_process_see_facts_while_the_run_works(path: Path) -> None:
    with running(READER, path) as reader, Journal(path) as journal:
        assert line_of(reader) == "run_started 0"
        for number in range(1, 4):
            journal.append([f.WarningNoted(at=number, text="x")])
            assert line_of(reader) == f"warning_noted {number}"


def test_requests_of_several_clients_at_once_arrive_once_each_in_the_order_of_each(path: Path) -> None:
    taken: list[f.Paused] = []
    with running(CLIENT, path, "ada") as one, running(CLIENT, path, "bob") as two, Journal(path) as journal:
        while one.poll() is None or two.poll() is None or journal.requests():
            requests = journal.requests()
            facts = [request for _, request in requests if isinstance(request, f.Paused)]
            journal.append(facts, taken=[id_ for id_, _ in requests])
            taken += facts
        journaled = [fact for _, fact in journal.facts() if isinstance(fact, f.Paused)]
    assert taken == journaled
    for who in ("ada", "bob"):
        assert [request.at for request in taken if request.by == who] == list(range(20))


def test_a_second_process_is_refused_with_the_process_that_runs_it(path: Path) -> None:
    with running(HOLDER, path) as other:
        assert line_of(other) == "held"
        who = holder(path)
        assert who is not None
        assert who.pid == other.pid
        with (
            pytest.raises(JournalLockedError, match=f"is already running in process {other.pid} on {who.host}"),
            engine_lock(path),
        ):
            raise AssertionError("two at once")


def test_a_kill_frees_the_lock(path: Path) -> None:
    with running(HOLDER, path) as other:
        assert line_of(other) == "held"
        other.kill()
        other.wait()
        assert holder(path) is None
        with engine_lock(path):
            who = holder(path)
            assert who is not None
            assert who.pid == os.getpid()


def test_a_damaged_journal_is_one_line_in_every_process_and_not_a_traceback(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])
    done = python(ASKER, path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(path) in done.stderr


def test_a_follower_in_a_process_that_came_late_knows_everything(path: Path) -> None:
    with Journal(path) as journal, Journal(path) as other:
        journal.append([f.WarningNoted(at=number, text="x") for number in range(50)])
        follower = Follower()
        follower.catch_up(other)
        assert follower.state == replayed(fact for _, fact in journal.facts())
        assert follower.seq == 51


def test_a_journal_that_another_program_keeps_busy_is_reported(path: Path) -> None:
    with Journal(path) as one, Journal(path, busy_ms=50) as two:
        one._db.execute("begin immediate")
        with pytest.raises(JournalError, match="another process is using it: try again"):
            two.append([f.WarningNoted(at=0, text="x")])
        one._db.execute("rollback")
        two.append([f.WarningNoted(at=0, text="x")])
