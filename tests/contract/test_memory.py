"""The guarantees of a run's journal and clock that the engine relies on: of the real ones, and of the tests' own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.core.facts import facts as f
from fleet.core.policy.requests import Request
from fleet.engine.loop import SystemClock
from fleet.ports.journal import Clock
from fleet.ports.journal import Journal as JournalPort
from fleet.runs.journal import Journal
from tests.fleet.core.pretend import started
from tests.fleet.fakes import FakeMemory, RealClock
from tests.fleet.hands import Clock as PaperClock

PAUSED, UNPAUSED = f.Paused(at=1, by="ada"), f.Unpaused(at=2, by="ada")


@dataclass(frozen=True)
class Rig:
    """A journal, and what other processes do with it: clients make requests, readers read facts."""

    memory: JournalPort
    ask: Callable[[Request], None]
    facts: Callable[[], list[f.Fact]]
    appends_fail: Callable[[], None]
    """From now on."""


@contextmanager
def fake(_: Path) -> Iterator[Rig]:
    memory = FakeMemory()

    def fail() -> None:
        def full() -> None:
            raise OSError("no space left on device")

        memory.before_append = full

    yield Rig(memory, memory.ask, lambda: memory.facts, fail)


@contextmanager
def journal(folder: Path) -> Iterator[Rig]:
    path = folder / "journal.db"
    with Journal.create(path) as memory, closing(Journal(path)) as client:

        def facts() -> list[f.Fact]:
            return [fact for _, fact in client.facts()]

        yield Rig(memory, client.ask, facts, lambda: _fail_each_insert(memory))


def _fail_each_insert(memory: Journal) -> None:
    memory._db.execute(
        "create temp trigger full before insert on main.facts begin select raise(abort, 'no space left'); end"
    )


@pytest.fixture(params=[fake, journal], ids=["fake", "journal"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with request.param(tmp_path) as rig:
        yield rig


def ids_of(requests: Sequence[tuple[int, Request]]) -> list[int]:
    return [id_ for id_, _ in requests]


def note(text: str) -> f.WarningNoted:
    return f.WarningNoted(at=1, text=text)


def test_facts_are_read_back_as_they_were_appended_and_in_that_order(rig: Rig) -> None:
    rig.memory.append([started(), note("one")])
    rig.memory.append([])
    rig.memory.append([note("two")])
    assert rig.facts() == [started(), note("one"), note("two")]


def test_an_append_that_fails_adds_no_fact_and_takes_no_request(rig: Rig) -> None:
    rig.memory.append([started()])
    rig.ask(PAUSED)
    asked = rig.memory.requests()
    rig.appends_fail()
    with pytest.raises(Exception, match="no space left"):
        rig.memory.append([PAUSED, note("one")], taken=ids_of(asked))
    assert rig.facts() == [started()]
    assert rig.memory.requests() == asked


def test_requests_wait_in_the_order_they_were_made_until_they_are_taken(rig: Rig) -> None:
    rig.ask(PAUSED)
    rig.ask(UNPAUSED)
    rig.memory.append([note("of something else")])
    (first, pause), (second, unpause) = rig.memory.requests()
    assert (pause, unpause) == (PAUSED, UNPAUSED)
    assert first < second


def test_a_request_is_taken_once_and_no_other_with_it(rig: Rig) -> None:
    rig.ask(PAUSED)
    (first,) = ids_of(rig.memory.requests())
    rig.memory.append([PAUSED], taken=[first])
    rig.ask(UNPAUSED)
    (second,) = ids_of(rig.memory.requests())
    assert second != first
    rig.memory.append([note("taken again")], taken=[first])
    assert ids_of(rig.memory.requests()) == [second]


def test_a_request_is_a_change_once_and_an_append_is_not(rig: Rig) -> None:
    rig.memory.changed()
    rig.memory.append([note("one")])
    assert not rig.memory.changed()
    rig.ask(PAUSED)
    assert rig.memory.changed()
    assert not rig.memory.changed()


def test_the_first_look_finds_earlier_requests(rig: Rig) -> None:
    """An engine that starts must not miss requests from the time when no engine ran."""
    rig.ask(PAUSED)
    assert rig.memory.changed()


# ---- clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [SystemClock(), RealClock(), PaperClock()], ids=["system", "fake", "paper"])
def test_a_clock_never_goes_back_and_never_jumps(clock: Clock) -> None:
    looks = [clock.now() for _ in range(1000)]
    assert looks == sorted(looks)
    assert looks[-1] - looks[0] < 60
