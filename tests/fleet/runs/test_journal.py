"""The journal in one process: facts stay, requests are taken once, and problems are reported."""

import errno
import fcntl
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Timer

import pytest

from fleet.core.facts import facts as f
from fleet.core.history.evolve import Follower, evolve
from fleet.core.state.state import RunState
from fleet.runs.journal import (
    LOCK_RETRY_S,
    SCHEMA,
    Holder,
    Journal,
    JournalError,
    JournalLockedError,
    engine_lock,
    holder,
)
from tests.fleet.core.pretend import replayed, started

HERE = "here"


def note(text: object) -> f.WarningNoted:
    return f.WarningNoted(at=1, text=str(text))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with Journal.create(path) as journal:
        journal.append([started()])
        yield journal


def error(path: Path) -> str:
    with pytest.raises(JournalError) as caught, Journal(path) as journal:
        journal.facts()
    return str(caught.value)


# ---- facts -----------------------------------------------------------------------------------------------------------


def test_facts_come_back_in_the_order_they_became_true(journal: Journal) -> None:
    journal.append([note(1), note(2)])
    journal.append([note(3)])
    facts = journal.facts()
    assert [seq for seq, _ in facts] == [1, 2, 3, 4]
    assert [fact for _, fact in facts] == [started(), note(1), note(2), note(3)]
    assert [fact for _, fact in journal.facts(after=3)] == [note(3)]


def test_nothing_of_a_group_that_fails_is_written(journal: Journal) -> None:
    class Torn(f.WarningNoted):
        def model_dump_json(self, **_: object) -> str:
            raise RuntimeError("torn")

    with pytest.raises(RuntimeError, match="torn"):
        journal.append([note(1), Torn(at=1, text="x")])
    assert len(journal.facts()) == 1
    journal.append([note(2)])
    assert [fact for _, fact in journal.facts()] == [started(), note(2)]


def test_a_follower_sees_each_fact_once_with_the_state_after_it(journal: Journal, path: Path) -> None:
    seen: list[tuple[int, str]] = []

    def on_fact(_: RunState | None, fact: f.Fact, state: RunState) -> None:
        seen.append((len(state.warnings), fact.kind))

    follower = Follower(on_fact)
    with Journal(path) as reading:
        assert follower.catch_up(reading)
        assert not follower.catch_up(reading)
        journal.append([note(1), note(2)])
        assert follower.catch_up(reading)
        assert not follower.catch_up(reading)
    assert seen == [(0, "run_started"), (1, "warning_noted"), (2, "warning_noted")]
    assert follower.state == replayed(facts_of(journal))


def test_replaying_from_the_middle_is_replaying_from_the_start(journal: Journal) -> None:
    journal.append([note(number) for number in range(9)])
    half = state = replayed(facts_of(journal)[:5])
    for _, fact in journal.facts(after=5):
        state = evolve(state, fact)
    assert state == replayed(facts_of(journal))
    assert half == replayed(fact for seq, fact in journal.facts() if seq <= 5)
    assert evolve(None, started()) == replayed(facts_of(journal)[:1])


def facts_of(journal: Journal) -> list[f.Fact]:
    return [fact for _, fact in journal.facts()]


def test_a_journal_is_its_owners_alone(journal: Journal, path: Path) -> None:
    journal.append([])
    assert path.parent.stat().st_mode & 0o077 == 0


# ---- the inbox -------------------------------------------------------------------------------------------------------


def test_a_request_is_taken_with_the_facts_that_answer_it_and_only_once(journal: Journal, path: Path) -> None:
    with Journal(path) as client:
        client.ask(f.Paused(at=1, by="ada"))
        client.ask(f.Unpaused(at=2, by="ada"))
    (first, paused), (second, unpaused) = journal.requests()
    assert (paused, unpaused) == (f.Paused(at=1, by="ada"), f.Unpaused(at=2, by="ada"))
    journal.append([paused], taken=[first])
    assert [id_ for id_, _ in journal.requests()] == [second]
    assert [fact.kind for _, fact in journal.facts()] == ["run_started", "paused"]


def test_a_number_is_never_used_for_two_requests(journal: Journal) -> None:
    """Else a request that is answered twice could take another one with it."""
    journal.ask(f.Paused(at=1, by="ada"))
    ((first, _),) = journal.requests()
    journal.append([], taken=[first])
    journal.ask(f.Unpaused(at=2, by="ada"))
    ((second, _),) = journal.requests()
    assert second > first


def test_a_client_that_asks_is_noticed_and_our_own_writing_is_not(journal: Journal, path: Path) -> None:
    journal.changed()
    journal.append([note(1)])
    assert not journal.changed()
    with Journal(path) as client:
        client.ask(f.Paused(at=1, by="ada"))
    assert journal.changed()
    assert not journal.changed()


# ---- problems are reported -------------------------------------------------------------------------------------------


def test_a_missing_run_is_reported_with_where_to_look(tmp_path: Path) -> None:
    assert "nothing.db; run `fleet runs` to list them" in error(tmp_path / "nothing.db")


def test_a_newer_schema_is_refused_with_what_to_do(journal: Journal, path: Path) -> None:
    journal.append([note(1)])
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"pragma user_version={SCHEMA + 1}")
    said = error(path)
    assert f"written by a newer version of fleet (schema {SCHEMA + 1}, supported: {SCHEMA})" in said
    assert "make setup" in said
    assert "pip install --upgrade" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is not a fleet journal"), (b"not a database, but long enough to look like one" * 99, "is damaged")],
    ids=["empty", "text"],
)
def test_a_file_that_is_not_a_journal_is_reported(path: Path, content: bytes, said: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert said in error(path)


def test_another_programs_database_is_not_a_journal(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table t (x)")
    assert "is not a fleet journal" in error(path)


@pytest.mark.parametrize("left", [0.3, 0.6, 0.9])
def test_a_truncated_file_is_reported_with_what_to_do(path: Path, left: float) -> None:
    with Journal.create(path) as journal:
        journal.append([started(), *(note("x" * 1000) for _ in range(200))])
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * left)])
    said = error(path)
    assert str(path) in said
    assert "is damaged" in said
    assert f"restore {path.parent} from a backup" in said


def test_a_journal_that_is_damaged_while_it_is_followed_is_reported_too(path: Path) -> None:
    Journal.create(path).close()
    with Journal(path) as journal:
        path.write_bytes(b"garbage" * 4000)
        with pytest.raises(JournalError, match="is damaged"):
            Follower().catch_up(journal)


@pytest.mark.parametrize(
    ("insert", "what"),
    [
        ("insert into facts (kind, body) values ('coffee_made', ?)", "fact 2"),
        ("insert into inbox (body) values (?)", "request 1"),
    ],
)
def test_what_a_newer_version_wrote_is_refused_by_its_number(journal: Journal, insert: str, what: str) -> None:
    journal._db.execute(insert, (json.dumps({"kind": "coffee_made", "at": 0}),))
    read = journal.requests if "inbox" in insert else journal.facts
    with pytest.raises(JournalError, match=f"this version of fleet can't read {what} .* upgrade fleet"):
        read()


def test_a_full_disk_is_reported_with_what_to_do_and_loses_nothing(journal: Journal) -> None:
    journal._db.execute("pragma max_page_count=8")
    with pytest.raises(JournalError, match="free some disk space, then run `fleet resume`"):
        journal.append([note("x" * 100_000)])
    assert [fact for _, fact in journal.facts()] == [started()]
    journal._db.execute("pragma max_page_count=100000")
    journal.append([note("room again")])
    assert len(journal.facts()) == 2


def test_a_journal_that_may_not_be_written_is_reported_with_what_to_do(journal: Journal) -> None:
    journal._db.execute("pragma query_only=on")
    with pytest.raises(JournalError, match="check that the folder exists and is writable"):
        journal.ask(f.Paused(at=1, by="ada"))


def test_a_folder_that_can_not_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JournalError, match="check the disk"):
        Journal.create(tmp_path / "file" / "journal.db")


# ---- the lock --------------------------------------------------------------------------------------------------------


def test_a_run_without_an_engine_has_no_holder(path: Path, journal: Journal) -> None:
    assert holder(path) is None
    assert len(journal.facts()) == 1


def test_the_lock_is_free_again_after_its_block(journal: Journal, path: Path) -> None:
    for _ in range(2):
        with engine_lock(path):
            who = holder(path)
            assert who is not None
            assert who != Holder(pid=0, host="")
            journal.append([note(HERE)])
        assert holder(path) is None


def test_a_second_holder_is_refused_with_who_holds_it_and_what_to_do(journal: Journal, path: Path) -> None:
    journal.append([])
    with engine_lock(path), pytest.raises(JournalLockedError) as caught, engine_lock(path):
        raise AssertionError("two at once")
    assert f"{path.parent.name} is already running in process" in str(caught.value)
    assert f"`fleet watch {path.parent.name}`" in str(caught.value)
    assert f"`fleet cancel {path.parent.name}`" in str(caught.value)


def test_a_glance_at_who_holds_the_lock_is_not_in_the_way_of_who_takes_it(journal: Journal, path: Path) -> None:
    journal.append([])
    with path.with_name("engine.lock").open("a+") as glance:
        fcntl.flock(glance, fcntl.LOCK_SH)
        Timer(2 * LOCK_RETRY_S, fcntl.flock, (glance, fcntl.LOCK_UN)).start()
        with engine_lock(path):
            assert holder(path) is not None


def test_what_goes_wrong_inside_the_block_is_not_blamed_on_the_lock(journal: Journal, path: Path) -> None:
    journal.append([])
    with pytest.raises(BrokenPipeError), engine_lock(path):
        raise BrokenPipeError(errno.EPIPE, "the reader went away")
    assert holder(path) is None


def test_a_lock_that_can_not_be_made_is_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(JournalError, match="check that the folder exists"),
        engine_lock(tmp_path / "nowhere" / "journal.db"),
    ):
        raise AssertionError("held")
