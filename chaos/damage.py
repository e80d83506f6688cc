"""Damages the files of a killed run, resumes it, and checks that no work is lost and no human is asked.

    python -m chaos.damage                                    every kind of damage, at eight moments of a run
    python -m chaos.damage store-deleted tip-set-back         these kinds only
    python -m chaos.damage --moments 1 --jobs 2               once each, most of the run behind it

A kill preserves everything that the kernel has. These tests cover the other cases: a power failure before all data was
on disk, and people or programs that deleted, moved or planted files.
"""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chaos.kill import Result, Trial, open_trial, result
from chaos.repeatable_run import ENDED, KILLED, RUN, RepeatableRun
from chaos.scenarios import SCENARIOS
from fleet.core.base.ids import tip_ref
from scripts.frame import Table, add_jobs, add_names, command_line, exit_with, forked_processes
from tests.worktrees.conftest import git
from worktrees.target.publish import published_ref

WAL_FRAME = 24 + 4096  # of the write-ahead log: a header and a page
WAL_HEADER = 32
ALL = 10_000
BATCH = 6
"""Kinds of damage that share one trial."""


@dataclass(frozen=True)
class Damage:
    """One kind of damage, and the invariants that cannot hold after it."""

    name: str
    apply: Callable[[RepeatableRun], None]
    exempt: frozenset[str] = frozenset()
    lease: str = "auto"


# ---- the journal -----------------------------------------------------------------------------------------------------


def wal(run: RepeatableRun) -> Path:
    return run.folder.journal.with_name("journal.db-wal")


def truncate_wal(share: float) -> Callable[[RepeatableRun], None]:
    """Only a share of the write-ahead log reached the disk."""

    def apply(run: RepeatableRun) -> None:
        if wal(run).exists():
            os.truncate(wal(run), int(wal(run).stat().st_size * share))

    return apply


def zero_half_a_page(run: RepeatableRun) -> None:
    """Only half of the last page reached the disk."""
    size = wal(run).stat().st_size if wal(run).exists() else 0
    if size >= WAL_HEADER + WAL_FRAME:
        with wal(run).open("r+b") as file:
            file.seek(size - WAL_FRAME // 2)
            file.write(bytes(WAL_FRAME // 2))


def drop_last_byte(run: RepeatableRun) -> None:
    size = wal(run).stat().st_size if wal(run).exists() else 0
    if size:
        os.truncate(wal(run), size - 1)


def delete_side_files(run: RepeatableRun) -> None:
    """A person took the lock and the index of the log for leftovers."""
    for name in ("engine.lock", "journal.db-shm"):
        run.folder.path.joinpath(name).unlink(missing_ok=True)


# ---- the store -------------------------------------------------------------------------------------------------------


def store_of(run: RepeatableRun) -> Path:
    return run.store() / "fleet.git"


def written_objects(run: RepeatableRun) -> list[Path]:
    """Return the objects that the run wrote, the newest last. The others are hard links to the user's."""
    objects = [path for path in store_of(run).glob("objects/??/*") if path.stat().st_nlink == 1]
    return sorted(objects, key=lambda path: path.stat().st_mtime_ns)


def empty_objects(newest: int) -> Callable[[RepeatableRun], None]:
    """Objects with a name and no content: a file system may leave that when power fails."""

    def apply(run: RepeatableRun) -> None:
        for path in written_objects(run)[-newest:]:
            path.chmod(0o644)
            os.truncate(path, 0)

    return apply


def zero_objects(run: RepeatableRun) -> None:
    """Objects of the right size that hold only zeros."""
    for path in written_objects(run):
        size = path.stat().st_size
        path.chmod(0o644)
        path.write_bytes(bytes(size))


def empty_everywhere(run: RepeatableRun) -> None:
    """Also the published objects: only the journal is left."""
    delete_result_branch(run)
    git(run.repository, "prune", "--expire=now")
    empty_objects(ALL)(run)


def delete_refs(pattern: str) -> Callable[[RepeatableRun], None]:
    def apply(run: RepeatableRun) -> None:
        for path in store_of(run).glob(f"refs/fleet/{RUN}/{pattern}"):
            if path.is_file():
                path.unlink()

    return apply


def empty_refs(run: RepeatableRun) -> None:
    for path in store_of(run).glob(f"refs/fleet/{RUN}/**/*"):
        if path.is_file():
            os.truncate(path, 0)


def reset_tip(run: RepeatableRun) -> None:
    git(store_of(run), "update-ref", tip_ref(RUN), run.state().base)


def move_tip(run: RepeatableRun) -> None:
    """To a commit that is not part of the run."""
    base = run.state().base
    tree = git(store_of(run), "rev-parse", f"{base}^{{tree}}")
    commit = git(store_of(run), "commit-tree", tree, "-p", base, "-m", "mine")
    git(store_of(run), "update-ref", tip_ref(RUN), commit)


def plant_locks(run: RepeatableRun) -> None:
    """The lock files of git processes that died with the machine."""
    refs = store_of(run) / "refs" / "fleet" / RUN
    (refs / "attempts" / "a").mkdir(parents=True, exist_ok=True)
    for name in ("tip.lock", "published.lock", "attempts/a/1.lock"):
        (refs / name).touch()
    for name in ("packed-refs.lock", "HEAD.lock", "config.lock"):
        (store_of(run) / name).touch()


def delete_store(run: RepeatableRun) -> None:
    shutil.rmtree(store_of(run), ignore_errors=True)


def delete_all_stores(run: RepeatableRun) -> None:
    shutil.rmtree(run.current / "state" / "stores", ignore_errors=True)


def delete_worktrees(run: RepeatableRun) -> None:
    shutil.rmtree(run.store() / "slots", ignore_errors=True)


def delete_base_layers(run: RepeatableRun) -> None:
    shutil.rmtree(run.store() / "slots" / RUN / "overlays" / "bases", ignore_errors=True)


# ---- the user's repository -------------------------------------------------------------------------------------------


def delete_result_branch(run: RepeatableRun) -> None:
    git(run.repository, "update-ref", "-d", f"refs/heads/fleet/{RUN}")


def forget_published(run: RepeatableRun) -> None:
    git(store_of(run), "update-ref", "-d", published_ref(RUN), ok=False)


def both(first: Callable[[RepeatableRun], None], second: Callable[[RepeatableRun], None]) -> Callable[..., None]:
    def apply(run: RepeatableRun) -> None:
        first(run)
        second(run)

    return apply


COSTS_LOST = frozenset({"I20"})  # the end of the journal named calls that no one can know any more
REDONE = frozenset({"I15"})  # an attempt that no fact names is gone: its call is made again
DAMAGES = {
    damage.name: damage
    for damage in (
        Damage("journal-torn-at-its-start", truncate_wal(0.0), COSTS_LOST),
        *(Damage(f"journal-torn-at-{part}-percent", truncate_wal(part / 100), COSTS_LOST) for part in (20, 40, 60, 80)),
        Damage("journal-lacks-its-last-byte", drop_last_byte, COSTS_LOST),
        Damage("journal-ends-in-half-a-page", zero_half_a_page, COSTS_LOST),
        Damage("no-lock-file-and-no-index", delete_side_files),
        Damage("objects-emptied-the-newest", empty_objects(1), REDONE),
        Damage("objects-emptied-five", empty_objects(5), REDONE),
        Damage("objects-emptied-all", empty_objects(ALL), REDONE),
        Damage("objects-zeroed-all", zero_objects, REDONE),
        Damage("objects-emptied-and-none-published", empty_everywhere, REDONE),
        Damage("refs-of-attempts-deleted", delete_refs("attempts/**/*"), REDONE),
        Damage("refs-all-deleted", delete_refs("**/*"), REDONE),
        Damage("refs-all-emptied", empty_refs, REDONE),
        Damage("tip-set-back", reset_tip),
        Damage("tip-elsewhere", move_tip),
        Damage("locks-planted", plant_locks),
        Damage("store-deleted", delete_store, REDONE),
        Damage("store-and-worktrees-deleted", delete_all_stores, REDONE, lease="pool"),
        Damage("worktrees-deleted", delete_worktrees, lease="pool"),
        Damage("base-layers-deleted", delete_base_layers),
        Damage("result-branch-deleted", delete_result_branch),
        Damage("published-ref-deleted", forget_published),
        Damage("torn-and-emptied", both(truncate_wal(0.5), empty_objects(10)), COSTS_LOST | REDONE),
        Damage("torn-and-store-deleted", both(truncate_wal(0.5), delete_store), COSTS_LOST | REDONE),
    )
}


# ---- the program -----------------------------------------------------------------------------------------------------


def moments(trial: Trial, count: int) -> list[int]:
    """Crash points of the reference run, evenly spread from its start to its end."""
    last = len(trial.points)
    return sorted({max(1, round(last * number / (count + 1))) for number in range(1, count + 1)})


def damage_at(trial: Trial, damage: Damage, point: int) -> list[str]:
    """Kill at this point, damage and resume. Returns the violations."""
    run = trial.run
    run.reset()
    pins: dict[str, int] = {}
    if (outcome := run.run_engine(1, kill_at=("", point), patch=trial.patch)) == KILLED:
        pins = dict.fromkeys(run.pinned_attempts(), 1)
        damage.apply(run)
        outcome = run.run_engine(2, patch=trial.patch)
    if outcome != ENDED:
        return [f"the resumed run {outcome}: {run.log()}"]
    found = trial.violations(1, pins)
    return [violation for violation in found if violation.partition(":")[0] not in damage.exempt]


def damage_all(names: list[str], scenario: str, count: int) -> list[Result]:
    """Apply each of these kinds of damage, which share one way to lease."""
    results = []
    with open_trial(SCENARIOS[scenario], lease=DAMAGES[names[0]].lease) as trial:
        reference = [("reference", violation) for violation in trial.run_reference()]
        trial.damaged = True
        for name in names:
            started, chosen = time.perf_counter(), moments(trial, count)
            found = [
                (f"{point} of {len(trial.points)} points", violation)
                for point in chosen
                for violation in damage_at(trial, DAMAGES[name], point)
            ]
            each = (time.perf_counter() - started) / len(chosen)
            where = f"{len(chosen)} moments"
            results.append(result(f"damage: {name}", where, f"{each:.2f} s each", reference + found))
    return results


def batches(names: list[str]) -> list[list[str]]:
    """Names of damages that share one way to lease, a few each, to run side by side."""
    found = []
    for lease in dict.fromkeys(DAMAGES[name].lease for name in names):
        same = [name for name in names if DAMAGES[name].lease == lease]
        found += [same[start : start + BATCH] for start in range(0, len(same), BATCH)]
    return found


def main() -> int:
    parser = command_line("chaos.damage", __doc__)
    add_names(parser, "DAMAGE", DAMAGES)
    parser.add_argument("--moments", type=int, metavar="N", default=8, help="damage at N moments of the run (8)")
    parser.add_argument("--scenario", choices=SCENARIOS, default="plain")
    add_jobs(parser, 1)
    args = parser.parse_args()
    table = Table("invariants after a kill and damage")
    with forked_processes(args.jobs) as processes:
        tasks = [
            processes.submit(damage_all, names, args.scenario, args.moments)
            for names in batches(args.names or list(DAMAGES))
        ]
        for task in tasks:
            for row in task.result():
                table.add(row.figure, details=row.details)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
