"""What nodes send: honest work becomes a commit of ours, and of a liar's work nothing gets into the store."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts.facts import Failure
from fleet.ports.worktrees import Change
from fleet.runs.crash_points import listening
from tests.worktrees.conftest import RUN, Bench, OpenBench, git, sha_at, sign
from worktrees.base.settings import MIB
from worktrees.git.object_format import PackLimits
from worktrees.leases.commit import Arrival, IntakeError, take_in

ONE = SubtaskId("one")

Make = Callable[[Path], None]


class Liar:
    """A clone of the repository, in which a node makes whatever it likes."""

    def __init__(self, bench: Bench, at: Path) -> None:
        self.bench, self.at = bench, at
        git(at.parent, "clone", "--quiet", str(bench.repository), str(at))

    def commit(self, make: Make) -> Sha:
        make(self.at)
        git(self.at, "add", "-A", "-f")
        git(self.at, "commit", "--quiet", "--allow-empty", "-m", "Fleet-Task: forged")
        return sha_at(self.at)

    def pack(self, *revisions: str, thin: bool = True) -> bytes:
        argv = ["git", "pack-objects", "--revs", "--stdout", "--quiet", *(["--thin"] if thin else [])]
        lines = "".join(f"{each}\n" for each in revisions)
        return subprocess.run(argv, cwd=self.at, input=lines.encode(), capture_output=True, check=True).stdout

    def arrival(self, make: Make) -> Arrival:
        commit = self.commit(make)
        return Arrival(self.pack(commit, f"^{self.bench.base}"), commit, self.bench.base)


def writes(path: str, content: str) -> Make:
    def make(at: Path) -> None:
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).write_text(content)

    return make


def links(path: str, target: str) -> Make:
    def make(at: Path) -> None:
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).symlink_to(target)

    return make


async def arrives(bench: Bench, arrival: Arrival, *, touches: tuple[str, ...] = ("src/",)) -> Change | Failure:
    store, box = bench.worktrees.store, bench.settings.box.model_copy(update={"max_file_mb": 5000 / MIB})
    settings = replace(bench.settings, box=box)
    limits = PackLimits(packed_bytes=200_000, objects=200, bytes=400_000)
    return await take_in(store, arrival, signature=sign(), touches=touches, settings=settings, limits=limits)


def loose(bench: Bench) -> set[str]:
    """The files of the store's objects, and whatever else lies beside it."""
    objects = bench.worktrees.store.git_dir / "objects"
    return {str(path) for path in (*objects.rglob("*"), *bench.worktrees.store.home.glob("new-*")) if path.is_file()}


async def test_honest_work_becomes_a_commit_of_ours(open_bench: OpenBench, tmp_path: Path) -> None:
    async with open_bench() as bench:
        arrival = Liar(bench, tmp_path / "node").arrival(writes("src/two.py", "TWO = 2\n"))
        change = await arrives(bench, arrival)
        assert isinstance(change, Change)
        assert change.paths == ("src/two.py",)
        store = bench.worktrees.store
        assert await bench.worktrees.pinned(RUN, ONE, 1) == change
        message = await store.git.line("show", "--no-patch", "--format=%an %s%n%B", change.commit)
        assert "forged" not in message
        assert "Fleet-Task: one" in message
        assert await store.git.line("show", f"{change.commit}:src/two.py") == "TWO = 2"
        assert await store.git.sha(arrival.commit) is None, "the node's own commit stays outside"
        assert not list(store.home.glob("new-*"))


async def test_what_a_killed_engine_had_begun_to_take_in_is_taken_in_again(
    open_bench: OpenBench, tmp_path: Path
) -> None:
    """The node's commit may be the very one that is made here, and be in the store before it is pinned."""
    async with open_bench() as bench:
        arrival = Liar(bench, tmp_path / "node").arrival(writes("src/two.py", "TWO = 2\n"))
        await bench.worktrees.store.git("unpack-objects", "-q", data=arrival.pack)
        change = await arrives(bench, arrival)
        assert isinstance(change, Change)
        assert await bench.worktrees.pinned(RUN, ONE, 1) == change


async def test_an_engine_that_is_killed_leaves_no_folder_without_its_files(
    open_bench: OpenBench, tmp_path: Path
) -> None:
    """At each object that moves into the store: what is there is whole, and the work can be taken in again."""

    class KilledError(Exception):
        pass

    def kill(name: str) -> None:
        if "object of a node" in name:
            raise KilledError

    async with open_bench() as bench:
        liar, store = Liar(bench, tmp_path / "node"), bench.worktrees.store
        writes("src/deep/three.py", "THREE = 3\n")(liar.at)
        arrival = liar.arrival(writes("src/two.py", "TWO = 2\n"))
        for _ in range(5):  # two files, and the three folders that they are in
            with listening(kill), pytest.raises(KilledError):
                await arrives(bench, arrival)
            git(store.git_dir, "fsck", "--no-dangling")
        with listening(kill):
            assert isinstance(await arrives(bench, arrival), Change)


LIES: dict[str, tuple[Make, str]] = {
    "a link out of the repository": (links("src/out", "../../etc/passwd"), "may leave the repository"),
    "an absolute link": (links("src/out", "/etc/passwd"), "may leave the repository"),
    "a link that leaves through another": (links("src/out", "in/../../.."), "may leave the repository"),
    "a file that is too large": (writes("src/large", "x" * 6_000), "limit is 5000"),
    "a name with a control character": (writes("src/a\tb", "x"), "a path that is not allowed"),
    "a pack bomb": (writes("src/bomb", "\0" * 500_000), "too large together"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_what_no_honest_node_sends_is_refused_by_its_content(
    lie: str, open_bench: OpenBench, tmp_path: Path
) -> None:
    make, why = LIES[lie]
    async with open_bench() as bench:
        arrival = Liar(bench, tmp_path / "node").arrival(make)
        with pytest.raises(IntakeError, match=why):
            await arrives(bench, arrival)
        assert await bench.worktrees.pinned(RUN, ONE, 1) is None


async def test_a_lie_about_the_commit_is_refused_and_leaves_nothing(open_bench: OpenBench, tmp_path: Path) -> None:
    async with open_bench() as bench:
        liar, base = Liar(bench, tmp_path / "node"), bench.base
        before = loose(bench)
        first = liar.commit(writes("src/two.py", "TWO = 2\n"))
        second = liar.commit(writes("src/three.py", "THREE = 3\n"))
        both = liar.pack(second, f"^{base}")
        orphan = Sha(git(liar.at, "commit-tree", "-m", "no parent", f"{first}^{{tree}}"))
        merged = Sha(git(liar.at, "commit-tree", "-m", "two", "-p", base, "-p", first, f"{first}^{{tree}}"))
        blob = sha_at(liar.at, f"{first}:src/two.py")
        lies = {
            "another parent": (Arrival(both, second, base), "is based on"),
            "no parent": (Arrival(liar.pack(orphan, f"^{base}"), orphan, base), "based on an empty history"),
            "two parents": (Arrival(liar.pack(merged, f"^{base}"), merged, base), "is based on"),
            "another commit than it holds": (Arrival(both, Sha("f" * 40), base), "is missing or too long"),
            "a file instead of a commit": (Arrival(both, blob, base), "is missing or too long"),
            "the base itself": (Arrival(both, base, base), "based on an empty history"),
            "a folder without its file": (
                Arrival(_only(liar, first, f"{first}^{{tree}}", f"{first}:src"), first, base),
                "git rejects",
            ),
            "a path as its commit": (Arrival(both, Sha("../" * 13 + "x"), base), "id is not valid"),
            "an option as its commit": (Arrival(both, Sha(f"--{'x' * 38}"), base), "id is not valid"),
            "objects that are missing": (Arrival(_only(liar, first), first, base), "git rejects|missing"),
            "no pack at all": (Arrival(b"", first, base), "not a version 2 pack"),
            "noise": (Arrival(os.urandom(5_000), first, base), "not a version 2 pack"),
            "a pack cut short": (Arrival(both[:-30], second, base), "checksum"),
        }
        for lie, (arrival, why) in lies.items():
            with pytest.raises(IntakeError, match=why):
                await arrives(bench, arrival)
            assert loose(bench) == before, lie
        assert await bench.worktrees.pinned(RUN, ONE, 1) is None


def _only(liar: Liar, *names: str) -> bytes:
    """A pack of these objects, without what they need."""
    argv, ids = ["git", "pack-objects", "--stdout", "--quiet"], [git(liar.at, "rev-parse", name) for name in names]
    return subprocess.run(argv, cwd=liar.at, input="\n".join(ids).encode(), capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (writes("README.md", "changed"), "outside the subtask"),
        (writes("src/conftest.py", "import os"), "protected"),
        (writes("src/key", "AKIAABCDEFGHIJKLMNOP"), "seems to contain a secret"),
        (writes("src/ONE.py", "ONE = 1"), "collide"),
        (lambda _: None, "no changes"),
    ],
)
async def test_the_rules_for_changes_hold_for_those_of_nodes(
    make: Make, why: str, open_bench: OpenBench, tmp_path: Path
) -> None:
    async with open_bench() as bench:
        failure = await arrives(bench, Liar(bench, tmp_path / "node").arrival(make))
        assert isinstance(failure, Failure)
        assert why in failure.summary
