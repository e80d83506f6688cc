"""Every face of the program shows of every run of the corpus what it showed when that was recorded."""

import difflib
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tests.corpus.faces import FACES, faces_of, printed, together
from tests.corpus.state_dir import JOURNALS, Recorded

SHOWN = Path(__file__).parent / "shown"
RUNS = {name: Recorded(name) for name in sorted(path.name.partition(".")[0] for path in JOURNALS.iterdir())}
CASES = [(run, face) for run in RUNS for face in faces_of(RUNS[run])]
QUICK = ("approval", "busy", "every-fact", "golden-v1", "hostile", "incidents", "machines", "standings", "unproved")
"""Runs that `make test` renders, with each face at least once; `make test-all` renders all of them."""
QUICK_FACES = {
    "text": ("every-fact", "hostile", "incidents", "machines"),
    "json": ("approval", "busy", "golden-v1", "standings", "unproved"),
    "decisions": ("approval",),
}
"""The same for faces of many commands. Text and JSON are printed by the same ones, so that each run has one of both."""
QUICK_CASES = [(run, face) for run, face in CASES if run in QUICK_FACES.get(face, QUICK)]
MARKED = [pytest.param(*case, marks=[] if case in QUICK_CASES else pytest.mark.thorough) for case in CASES]
TOGETHER = (
    "busy",
    "approval",
    "crashed",
    "landed",
    "cancelled",
    "questions",
    "refused",
    "hostile",
    "golden-v1",
    "empty",
)
DIFF = 300  # lines
LEAST = 3  # runs of each face
Compare = Callable[[str, str], None]


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Compare:
    """Compares what is shown now with a file, or records it there."""

    def compare(name: str, now: str) -> None:
        recorded = SHOWN / name
        if request.config.getoption("--renew-corpus"):
            recorded.parent.mkdir(parents=True, exist_ok=True)
            recorded.write_text(now, encoding="utf-8")
        assert recorded.is_file(), f"{recorded} is missing; --renew-corpus writes it"
        before = recorded.read_text(encoding="utf-8")
        if now != before:
            lines = difflib.unified_diff(before.split("\n"), now.split("\n"), f"shown/{name}", "now", n=3, lineterm="")
            pytest.fail(
                "\n".join((*islice(lines, DIFF), "if the change is wanted, --renew-corpus records it")), pytrace=False
            )

    return compare


@pytest.mark.parametrize(("run", "face"), MARKED, ids=lambda part: part)
def test_a_face_shows_of_a_run_what_it_showed(run: str, face: str, compare: Compare) -> None:
    compare(f"{run}/{face}.txt", printed(FACES[face](RUNS[run])))


def test_several_runs_are_shown_as_they_were(compare: Compare) -> None:
    compare("together.txt", printed(together([RUNS[run] for run in TOGETHER])))


def test_each_face_is_recorded_of_several_runs_and_nothing_else_is(request: pytest.FixtureRequest) -> None:
    counted = Counter(face for _, face in CASES)
    assert {face: counted[face] for face in FACES if counted[face] < LEAST} == {}
    assert {face for _, face in QUICK_CASES} == set(FACES)
    assert sorted(run for run, face in QUICK_CASES if face in {"text", "json"}) == sorted(QUICK)
    wanted = {SHOWN / "together.txt", *(SHOWN / run / f"{face}.txt" for run, face in CASES)}
    others = {path for path in SHOWN.rglob("*") if path.is_file()} - wanted
    if request.config.getoption("--renew-corpus"):
        for path in others:
            path.unlink()
    else:
        assert others == set()
