"""A stand-in for the cluster: two colours in a folder, a SQLite database, and an HTTP interface on loopback.

The programs of the deployment reach it only through that interface, as they would a real one. Faults are set here:
`faulty` names versions that start but do not work, `staging_is_down` makes the smoke test fail.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from examples.loopback import TextHandler, on_loopback

OLD, USERS = "v2.1.3", ("ada", "bob", "eve")
COLOURS = ("blue", "green")


class ClusterError(Exception):
    """A refused request. The message is the response."""


class Cluster:
    """A cluster in a folder: `blue/version`, `green/version`, `live` (a colour), `auth_prod.db`, `backups/`."""

    def __init__(self, folder: Path, *, faulty: tuple[str, ...] = (), staging_is_down: bool = False) -> None:
        self.folder, self.faulty, self.staging_is_down = folder, faulty, staging_is_down
        for colour in (*COLOURS, "backups"):
            (folder / colour).mkdir(parents=True)
        self._write("blue/version", OLD)
        self._write("green/version", "v2.1.2")
        self._write("live", "blue")
        with closing(sqlite3.connect(self.database)) as base, base:
            base.execute("create table users (name text primary key)")
            base.executemany("insert into users values (?)", [(name,) for name in USERS])

    @property
    def database(self) -> Path:
        return self.folder / "auth_prod.db"

    @property
    def live(self) -> str:
        """The version that answers."""
        return self._read(f"{self._read('live')}/version")

    @property
    def columns(self) -> list[str]:
        """The columns of the table of users: a migration adds one."""
        with closing(sqlite3.connect(self.database)) as base:
            return [row[1] for row in base.execute("pragma table_info(users)")]

    @property
    def backups(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "backups").iterdir())

    def smoke(self, environment: str) -> dict[str, object]:
        if environment == "staging" and self.staging_is_down:
            raise ClusterError("1 of 3 checks failed: eve was let in")
        if environment == "production" and self.live in self.faulty:
            raise ClusterError("health check: 503 Service Unavailable")
        return {"version": self.live}

    def backup(self, database: str, kind: str) -> dict[str, object]:
        name = f"{database}-{kind}.db"
        with closing(sqlite3.connect(self.database)) as base, closing(self._kept(name)) as kept:
            base.backup(kept)
            [rows] = base.execute("select count(*) from users").fetchone()
        return {"backup": name, "rows": rows}

    def restore(self, database: str) -> dict[str, object]:
        names = [name for name in self.backups if name.startswith(f"{database}-")]
        if not names:
            return {"backup": "no backup, so nothing was changed"}
        with closing(sqlite3.connect(self.database)) as base, closing(self._kept(names[-1])) as kept:
            kept.backup(base)
        return {"backup": names[-1]}

    def install(self, version: str) -> dict[str, object]:
        installed = [colour for colour in COLOURS if self._read(f"{colour}/version") == version]
        colour = installed[0] if installed else next(name for name in COLOURS if name != self._read("live"))
        self._write(f"{colour}/version", version)
        return {"colour": colour}

    def migrate(self, version: str) -> dict[str, object]:
        if "since" not in self.columns:
            with closing(sqlite3.connect(self.database)) as base, base:
                base.execute("alter table users add column since text")
        return {"version": version}

    def switch(self, version: str) -> dict[str, object]:
        colour = next((name for name in COLOURS if self._read(f"{name}/version") == version), None)
        if colour is None:
            raise ClusterError(f"{version} is not installed")
        self._write("live", colour)
        return {"colour": colour}

    def _kept(self, name: str) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "backups" / Path(name).name)

    def _read(self, path: str) -> str:
        return (self.folder / path).read_text(encoding="utf-8").strip()

    def _write(self, path: str, text: str) -> None:
        (self.folder / path).write_text(f"{text}\n", encoding="utf-8")


@contextmanager
def served(cluster: Cluster) -> Iterator[str]:
    """The address of the cluster's interface, for as long as the block lasts."""
    verbs = {
        f"/{verb.__name__}": verb
        for verb in (cluster.smoke, cluster.backup, cluster.restore, cluster.install, cluster.migrate, cluster.switch)
    }

    class Interface(TextHandler):
        def do_POST(self) -> None:  # noqa: N802 - its name in the library
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            try:
                code, text = 200, json.dumps(verbs[self.path](**body))
            except ClusterError as error:
                code, text = 409, str(error)
            self.answer(code, text)

    with on_loopback(Interface) as address:
        yield f"http://{address}"
