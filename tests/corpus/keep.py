"""Keeps journals for the corpus: python -m tests.corpus.keep [NAME JOURNAL.db ABOUT [FACE…]]

Without arguments, each story that has no journal yet. What is kept stays as it is: remove a file to make it again.
"""

import gzip
import json
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from tests.corpus.runs import STORIES, Told
from tests.corpus.state_dir import JOURNALS


def keep(name: str, told: Told) -> None:
    header = json.dumps({"about": told.about, "alive": told.alive, "faces": told.faces})
    text = "".join(f"{line}\n" for line in (header, *_renamed(name, told.lines)))
    (JOURNALS / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode("utf-8", "surrogatepass"), 9, mtime=0))


def _renamed(name: str, lines: Iterable[str]) -> Iterable[str]:
    """The facts of a run with this name, without a path or a machine of where it was."""
    first, *others = lines
    started = json.loads(first)
    where = json.dumps(started["repository"])[1:-1]
    is_elsewhere = where.startswith("/") and not where.startswith("/repo")
    started |= {"run": name, "result_branch": f"fleet/{name}"}
    started |= {} if where.startswith("/repo") else {"repository": "/repo"}
    for line in (json.dumps(started), *others):
        moved = line.replace(where, "/repo") if is_elsewhere else line
        fact = json.loads(moved)
        yield json.dumps(fact | {"host": "here"}) if fact["kind"] == "engine_started" else moved


def from_database(path: Path, about: str, faces: Sequence[str]) -> Told:
    with closing(sqlite3.connect(path)) as db:
        return Told(about, [body for (body,) in db.execute("select body from facts order by seq")], faces)


def main(arguments: list[str]) -> None:
    if arguments:
        name, journal, about, *faces = arguments
        keep(name, from_database(Path(journal), about, faces))
    for name, story in STORIES.items():
        if not (JOURNALS / f"{name}.jsonl.gz").exists():
            keep(name, story())


if __name__ == "__main__":
    main(sys.argv[1:])
