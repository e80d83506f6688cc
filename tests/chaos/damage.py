"""Damages what a killed run left, resumes it, and looks at what comes of it: nothing lost, nobody asked.

    python -m tests.chaos.damage [NAME ...] [--moments N] [--scenario NAME]

A kill leaves what the kernel has. This is for the rest: power that failed before the disk had everything, and people
or programs that deleted, left or planted something. Each is done to a run that was killed at some moments on its way.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.core.ids import tip_ref
from tests.chaos.kill import Stage, staged, tell
from tests.chaos.room import ENDED, KILLED, RUN, Room
from tests.chaos.scenarios import SCENARIOS
from tests.worktrees.conftest import git
from worktrees.publish import published_ref

FRAME = 24 + 4096  # of the write-ahead log: its header, and a page
WAL_HEADER = 32


@dataclass(frozen=True)
class Damage:
    """What is done to what a kill left, and what then can't be asked of the run."""

    name: str
    do: Callable[[Room], None]
    excused: frozenset[str] = frozenset()
    lease: str = "auto"


# ---- the journal ----------------------------------------------------------------------------------------------------


def wal(room: Room) -> Path:
    return room.folder.journal.with_name("journal.db-wal")


def torn(part: float) -> Callable[[Room], None]:
    """Only so much of the log reached the disk."""

    def tear(room: Room) -> None:
        if wal(room).exists():
            os.truncate(wal(room), int(wal(room).stat().st_size * part))

    return tear


def half_a_page(room: Room) -> None:
    """The last page is there by half."""
    size = wal(room).stat().st_size if wal(room).exists() else 0
    if size >= WAL_HEADER + FRAME:
        with wal(room).open("r+b") as file:
            file.seek(size - FRAME // 2)
            file.write(bytes(FRAME // 2))


def byte_missing(room: Room) -> None:
    size = wal(room).stat().st_size if wal(room).exists() else 0
    if size:
        os.truncate(wal(room), size - 1)


def no_side_files(room: Room) -> None:
    """What a person removes who takes them for leftovers: the lock, and the index of the log."""
    for name in ("engine.lock", "journal.db-shm"):
        room.folder.path.joinpath(name).unlink(missing_ok=True)


# ---- the store ------------------------------------------------------------------------------------------------------


def store_of(room: Room) -> Path:
    return room.store() / "fleet.git"


def own_objects(room: Room) -> list[Path]:
    """Those that the run wrote, the newest last; the others are the user's, by hard links."""
    found = [path for path in store_of(room).glob("objects/??/*") if path.stat().st_nlink == 1]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def emptied(newest: int) -> Callable[[Room], None]:
    """Objects that have a name and no content: a file system may leave that when power fails."""

    def empty(room: Room) -> None:
        for path in own_objects(room)[-newest:]:
            path.chmod(0o644)
            os.truncate(path, 0)

    return empty


def zeroed(room: Room) -> None:
    """Or as long as they were, and all zeros."""
    for path in own_objects(room):
        size = path.stat().st_size
        path.chmod(0o644)
        path.write_bytes(bytes(size))


def emptied_everywhere(room: Room) -> None:
    """Also what was published: nothing is left but the words of the journal."""
    result_deleted(room)
    git(room.repository, "prune", "--expire=now")
    emptied(10_000)(room)


def refs_deleted(pattern: str) -> Callable[[Room], None]:
    def delete(room: Room) -> None:
        for path in store_of(room).glob(f"refs/fleet/{RUN}/{pattern}"):
            if path.is_file():
                path.unlink()

    return delete


def refs_emptied(room: Room) -> None:
    for path in store_of(room).glob(f"refs/fleet/{RUN}/**/*"):
        if path.is_file():
            os.truncate(path, 0)


def tip_set_back(room: Room) -> None:
    git(store_of(room), "update-ref", tip_ref(RUN), room.state().base)


def tip_elsewhere(room: Room) -> None:
    """On a commit that nobody of the run made."""
    base = room.state().base
    tree = git(store_of(room), "rev-parse", f"{base}^{{tree}}")
    git(store_of(room), "update-ref", tip_ref(RUN), git(store_of(room), "commit-tree", tree, "-p", base, "-m", "mine"))


def locks_planted(room: Room) -> None:
    """By gits that died with the machine."""
    refs = store_of(room) / "refs" / "fleet" / RUN
    (refs / "attempts" / "a").mkdir(parents=True, exist_ok=True)
    for name in ("tip.lock", "published.lock", "attempts/a/1.lock"):
        (refs / name).touch()
    for name in ("packed-refs.lock", "HEAD.lock", "config.lock"):
        (store_of(room) / name).touch()


def store_deleted(room: Room) -> None:
    shutil.rmtree(store_of(room), ignore_errors=True)


def home_deleted(room: Room) -> None:
    shutil.rmtree(room.play / "state" / "stores", ignore_errors=True)


def worktrees_deleted(room: Room) -> None:
    shutil.rmtree(room.store() / "slots", ignore_errors=True)


def bases_deleted(room: Room) -> None:
    shutil.rmtree(room.store() / "slots" / RUN / "overlays" / "bases", ignore_errors=True)


# ---- the user's repository ------------------------------------------------------------------------------------------


def result_deleted(room: Room) -> None:
    git(room.repository, "update-ref", "-d", f"refs/heads/fleet/{RUN}")


def published_forgotten(room: Room) -> None:
    git(store_of(room), "update-ref", "-d", published_ref(RUN), ok=False)


def together(*deeds: Callable[[Room], None]) -> Callable[[Room], None]:
    def all_of(room: Room) -> None:
        for do in deeds:
            do(room)

    return all_of


SPENT = frozenset({"I20"})  # what the end of a journal said of calls nobody knows any more
REDONE = frozenset({"I15"})  # an attempt that no fact tells of is gone: its call is made again
DAMAGES = {
    one.name: one
    for one in (
        Damage("journal-torn-at-its-start", torn(0.0), SPENT),
        *(Damage(f"journal-torn-at-{part}-percent", torn(part / 100), SPENT) for part in (20, 40, 60, 80)),
        Damage("journal-lacks-its-last-byte", byte_missing, SPENT),
        Damage("journal-ends-in-half-a-page", half_a_page, SPENT),
        Damage("no-lock-file-and-no-index", no_side_files),
        Damage("objects-emptied-the-newest", emptied(1), REDONE),
        Damage("objects-emptied-five", emptied(5), REDONE),
        Damage("objects-emptied-all", emptied(10_000), REDONE),
        Damage("objects-zeroed-all", zeroed, REDONE),
        Damage("objects-emptied-and-none-published", emptied_everywhere, REDONE),
        Damage("refs-of-attempts-deleted", refs_deleted("attempts/**/*"), REDONE),
        Damage("refs-all-deleted", refs_deleted("**/*"), REDONE),
        Damage("refs-all-emptied", refs_emptied, REDONE),
        Damage("tip-set-back", tip_set_back),
        Damage("tip-elsewhere", tip_elsewhere),
        Damage("locks-planted", locks_planted),
        Damage("store-deleted", store_deleted, REDONE),
        Damage("store-and-worktrees-deleted", home_deleted, REDONE, lease="pool"),
        Damage("worktrees-deleted", worktrees_deleted, lease="pool"),
        Damage("base-checkouts-deleted", bases_deleted),
        Damage("result-branch-deleted", result_deleted),
        Damage("place-of-the-result-branch-forgotten", published_forgotten),
        Damage("torn-and-emptied", together(torn(0.5), emptied(10)), SPENT | REDONE),
        Damage("torn-and-store-deleted", together(torn(0.5), store_deleted), SPENT | REDONE),
    )
}


def moments(stage: Stage, many: int) -> list[int]:
    """Points of the reference run to kill at, evenly from its beginning to its end."""
    last = len(stage.points)
    return sorted({max(1, round(last * number / (many + 1))) for number in range(1, many + 1)})


def damaged(stage: Stage, damage: Damage, at: int) -> list[str]:
    """Killed there, damaged, and resumed: what does not hold."""
    stage.room.reset()
    pins: dict[str, int] = {}
    if (how := stage.room.live(1, kill_at=("", at), patch=stage.patch)) == KILLED:
        pins = dict.fromkeys(stage.room.attempts(), 1)
        damage.do(stage.room)
        how = stage.room.live(2, patch=stage.patch)
    if how != ENDED:
        return [f"the resumed run is {how}: {stage.room.log()}"]
    return list(_counted(stage.look(1, pins), damage))


def _counted(found: list[str], damage: Damage) -> Iterator[str]:
    for wrong in found:
        if wrong.partition(":")[0] not in damage.excused:
            yield wrong


def every(names: list[str], scenario: str, many: int) -> int:
    bad = 0
    for lease in dict.fromkeys(DAMAGES[name].lease for name in names):
        with staged(SCENARIOS[scenario], lease=lease) as stage:
            stage.refer()
            stage.damaged = True
            for name in (name for name in names if DAMAGES[name].lease == lease):
                began, found = time.perf_counter(), list[tuple[str, str]]()
                chosen = moments(stage, many)
                for at in chosen:
                    found += [(f"{at} of {len(stage.points)} points", w) for w in damaged(stage, DAMAGES[name], at)]
                each = (time.perf_counter() - began) / len(chosen)
                bad += tell(f"damage: {name}", f"killed at {len(chosen)} moments", each, found)
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help=", ".join(DAMAGES))
    parser.add_argument("--moments", type=int, default=8, help="at how many moments of a run (default: 8)")
    parser.add_argument("--scenario", choices=list(SCENARIOS), default="plain")
    given = parser.parse_args()
    sys.exit(1 if every(given.names or list(DAMAGES), given.scenario, given.moments) else 0)


if __name__ == "__main__":
    main()
