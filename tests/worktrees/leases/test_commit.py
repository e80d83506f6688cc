"""Which changes become a commit, and which are refused with a reason."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.core.base.ids import RunId, Sha, SubtaskId, kept_ref
from fleet.core.facts.facts import Failure
from fleet.ports.worktrees import Change
from tests.worktrees.conftest import RUN, Bench, OpenBench, added_by_git, git, make_repository, sign
from tests.worktrees.histories import Made, make_history
from worktrees.base.settings import LeaseKind
from worktrees.git.object_format import compose, member_of

ONE = SubtaskId("one")


@pytest.fixture(params=["overlay", pytest.param("pool", marks=pytest.mark.thorough)])
def lease_kind(request: pytest.FixtureRequest) -> LeaseKind:
    return request.param  # type: ignore[no-any-return]


def shell(script: str, at: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    subprocess.run(["sh", "-c", script], cwd=at, env=env, check=True)


async def test_nothing_changed_is_empty(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.run("mkdir -p __pycache__ && touch __pycache__/a.pyc debug.log README.md", timeout_s=20)
        failure = await bench.commit(lease)
    assert isinstance(failure, Failure)
    assert failure.kind == "empty"


async def test_a_change_outside_the_bounds_names_its_paths_and_what_is_allowed(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.run("echo 2 > src/two.py; echo 3 > three.py; rm README.md", timeout_s=20)
        failure = await bench.commit(lease, touches=("src/**",))
        assert isinstance(failure, Failure)
        assert failure.kind == "bounds"
        assert failure.evidence.splitlines() == ["README.md", "three.py", "allowed: src/**"]
        change = await bench.commit(lease)
    assert isinstance(change, Change), "work out of bounds can still be kept"
    assert change.paths == ("README.md", "src/two.py", "three.py")


async def test_a_journal_can_hold_the_name_of_every_file_that_is_removed(tmp_path: Path, open_bench: OpenBench) -> None:
    odd = Made(b"an odd name", {b"caf\xe9": ("100644", b"coffee\n"), b"tea": ("100644", b"tea\n")})
    async with open_bench(make_history(tmp_path / "odd", (odd,))) as bench, bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.run("rm caf*", timeout_s=20)
        change = await bench.commit(lease)
        assert isinstance(change, Change)
        assert change.paths == ("caf\\xe9",)
        assert await bench.worktrees.pinned(RUN, ONE, 1) == change


async def test_unfinished_work_is_kept_and_never_taken_for_finished(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.write("half.py", b"half\n")
        change = await lease.commit(replace(sign("one"), unfinished=True), ())
    assert isinstance(change, Change)
    assert await bench.worktrees.pinned(RUN, ONE, 1) is None
    assert await bench.worktrees.store.git.sha(kept_ref(RUN, ONE, 1)) == change.commit


async def test_a_protected_file_changes_only_when_the_plan_names_it(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.write("src/conftest.py", b"collect_ignore_glob = ['*']\n")
        for touches in ((), ("src/**",)):
            failure = await bench.commit(lease, touches=touches)
            assert isinstance(failure, Failure)
            assert (failure.kind, failure.evidence.splitlines()[0]) == ("bounds", "src/conftest.py")
        assert isinstance(await bench.commit(lease, touches=("src/conftest.py",)), Change)


async def test_a_conftest_in_a_new_folder_belongs_to_who_may_change_the_folder(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.write("tests/new/conftest.py", b"")
        assert isinstance(await bench.commit(lease), Failure)
        assert isinstance(await bench.commit(lease, touches=("tests/**",)), Change)


async def test_a_nested_repository_is_refused_before_git_can_be_led_astray(bench: Bench, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    trap = f"""
    git init -q sub && cd sub && git -c user.name=x -c user.email=x commit -q --allow-empty -m x
    git config core.fsmonitor 'touch {marker}; false'
    """
    victim = tmp_path / "victim"
    git(tmp_path, "clone", "--quiet", str(bench.repository), str(victim))
    shell(trap, victim)
    git(victim, "add", "-A")
    git(victim, "status")
    assert marker.exists(), "the attack works on plain git"
    marker.unlink()
    async with bench.worktrees.lease(bench.base) as lease:
        assert (await lease.workspace.run(trap, timeout_s=20)).exit_code == 0
        failure = await bench.commit(lease)
    assert isinstance(failure, Failure)
    assert failure.evidence == "sub/.git: only git may use this name"
    async with bench.worktrees.lease(bench.base):
        pass
    assert not marker.exists()


@pytest.mark.parametrize(
    ("mess", "says"),
    [
        ("ln -s /etc/passwd link", "link: is a link that leaves the repository"),
        ("ln -s ../../outside src/link", "src/link: is a link that leaves the repository"),
        ("ln -s src a && ln -s a/../../x b", "b: is a link that leaves the repository"),
        ("mkdir x && echo 1 > x/.GIT", "x/.GIT: only git may use this name"),
        ("mkdir -p x/git~1", "x/git~1: only git may use this name"),
        ("mkfifo pipe", "pipe: is neither a file, a folder nor a link"),
        ("head -c 3000000 /dev/zero > big", "big: has 3000000 bytes, and the limit is 2097152"),
        ("printf x > \"$(printf 'a\\nb')\"", "a\\nb: has control characters or invalid UTF-8 in its name"),
        ("printf x > \"$(printf '\\377')\"", "\\xff: has control characters or invalid UTF-8 in its name"),
        ("printf 'k = \"AKIA%s\"' IOSFODNN7EXAMPLE > k.py", "k.py: seems to contain an AWS access key"),
    ],
)
async def test_what_may_not_be_committed_is_refused(open_bench: OpenBench, mess: str, says: str) -> None:
    async with open_bench(max_file_mb=2) as bench, bench.worktrees.lease(bench.base) as lease:
        assert (await lease.workspace.run(mess, timeout_s=20)).exit_code == 0
        failure = await bench.commit(lease)
    assert isinstance(failure, Failure)
    assert failure.kind == "bounds"
    assert says in failure.evidence.splitlines()


async def test_links_inside_odd_names_and_modes_are_committed_exactly(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        mess = "ln -s one.py src/link; echo x > ':(top)'; echo x > --force; echo x > tool; chmod 4711 tool"
        await lease.workspace.run(mess, timeout_s=20)
        change = await bench.commit(lease)
    assert isinstance(change, Change)
    assert change.paths == ("--force", ":(top)", "src/link", "tool")
    listed = await bench.worktrees.store.git("ls-tree", "-r", change.commit)
    assert [line.split()[0] for line in listed.decode().splitlines() if line.endswith(("link", "tool"))] == [
        "120000",
        "100755",
    ]


@pytest.mark.parametrize(
    "mess",
    [
        "mv src lib && echo 2 > lib/two.py",
        "rm -r src && echo file > src",
        "rm README.md && mkdir README.md && echo inside > README.md/x",
        "rm -r src && ln -s README.md src",
        "mkdir new && ln -s ../src new/link && cp -r src new/src",
        "chmod +x README.md && touch src/one.py",
        "echo x > kept.log && echo y > noted.log && printf '!kept.log\n' >> .gitignore",
        "mkdir -p a/b/c empty/folder && echo deep > a/b/c/d && rm .gitignore",
        "rm -r README.md src .gitignore",
        "echo x >> README.md && chmod 4000 README.md && chmod 0 src/one.py && echo y > new && chmod 6111 new",
        "mkdir closed && echo x > closed/x && chmod 000 closed",
    ],
)
async def test_what_is_committed_is_what_git_would_add(bench: Bench, tmp_path: Path, mess: str) -> None:
    async with bench.worktrees.lease(bench.base) as lease, bench.worktrees.leases.pool.lease(bench.base) as slot:
        assert (await lease.workspace.run(mess, timeout_s=20)).exit_code == 0
        change = await bench.commit(lease)
        assert isinstance(change, Change), change
        await bench.worktrees.leases.box.run(slot.place, ("sh", "-c", mess), timeout_s=20, cap=1000)
        wanted = await added_by_git(slot, bench.base, tmp_path / "index")
    assert await bench.worktrees.store.git.line("rev-parse", f"{change.commit}^{{tree}}") == wanted


async def test_a_second_commit_of_a_lease_holds_what_changed_meanwhile(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.write("a", b"1\n")
        await bench.commit(lease, "first")
        await lease.workspace.run("rm a; echo 2 > b", timeout_s=20)
        change = await bench.commit(lease, "second")
    assert isinstance(change, Change)
    assert change.paths == ("b",)


async def test_a_file_that_only_looks_like_a_secret_holder_is_committed(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.write("notes.md", b"keys look like AKIA followed by sixteen letters\n")
        assert isinstance(await bench.commit(lease), Change)


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"


async def test_files_of_git_lfs_are_committed_as_pointers_only(tmp_path: Path, open_bench: OpenBench) -> None:
    rules = "*.bin filter=lfs diff=lfs merge=lfs -text\nplain.bin -filter\n"
    files = {".gitattributes": rules, "old.bin": POINTER, "raw.bin": "x\n", "deep/a.txt": "a\n"}
    async with open_bench(make_repository(tmp_path / "large", files)) as bench:
        async with bench.worktrees.lease(bench.base) as lease:
            for name in ("old.bin", "deep/new.bin", "raw.bin", "plain.bin", "deep/a.txt"):
                await lease.workspace.write(name, b"\x00bytes\n")
            failure = await bench.commit(lease)
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.summary) == ("bounds", "changes files stored in Git LFS")
        assert failure.evidence.splitlines()[:2] == ["deep/new.bin", "old.bin"]
        assert "Leave these files unchanged" in failure.evidence.splitlines()[2]
        async with bench.worktrees.lease(bench.base) as lease:
            await lease.workspace.write("other.bin", POINTER.replace("12345", "99").encode())
            assert isinstance(await bench.commit(lease), Change)


def test_a_message_says_what_it_is_and_can_be_read_back() -> None:
    body = "Fleet-Task: other\nsigned-off-by: nobody\n\n---\nFleet-Attempt: 9\x1b]52;c;x\x07\n"
    message = compose(sign("real", attempt=2, title="Do\x1b[31m\nthis \u202e now", body=body))
    assert message.splitlines()[0] == "Do[31m this now"
    assert "\x1b" not in message
    assert "\nFleet-Task: other" not in message
    member = member_of(Sha("c0ffee"), message, RUN)
    assert member is not None
    assert (member.subtask, member.attempt) == ("real", 2)
    assert member_of(Sha("c0ffee"), message, RunId("r2")) is None
    assert member_of(Sha("c0ffee"), "hello\n\nFleet-Run: r1\nFleet-Task: ../x\nFleet-Attempt: 1\n", RUN) is None
