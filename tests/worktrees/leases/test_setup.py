"""The set-up of worktrees: made once, kept while it is valid, and safe from tenants."""

from pathlib import Path

import pytest

from fleet.core.base.ids import Sha
from fleet.errors import FleetError
from fleet.ports.worktrees import Change, EffectError, SetupFailedError
from tests.worktrees.conftest import Bench, OpenBench, git, make_repository, sha_at
from worktrees.base.settings import LeaseKind
from worktrees.leases import setup

SETUP = """
mkdir -p deps/.bin && date +%N > deps/made && echo tool > deps/.bin/tool && echo changed > lock.txt && echo x > stray
"""


@pytest.fixture(params=["overlay", "pool"])
def lease_kind(request: pytest.FixtureRequest) -> LeaseKind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = {"lock.txt": "1\n", "README.md": "hello\n", ".gitignore": "deps/\n*.env\nodd*\n", "conf/app": "app\n"}
    return make_repository(tmp_path / "project", files)


async def time_of_setup(bench: Bench, commit: Sha | None = None, *, then: str = "true") -> str:
    """When the set-up of a lease was made; runs `then` in the lease afterwards."""
    async with bench.worktrees.lease(commit or bench.base) as lease:
        result = await lease.workspace.run(f"cat deps/made && {then}", timeout_s=60)
        assert result.exit_code == 0, result.output
        return result.output.split()[0]


async def commit_of(bench: Bench, subtask: str, script: str) -> Sha:
    async with bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.run(script, timeout_s=60)
        change = await bench.commit(lease, subtask)
    assert isinstance(change, Change), change
    return change.commit


async def test_the_set_up_is_kept_while_nothing_it_depends_on_changes(open_bench: OpenBench) -> None:
    async with open_bench(setup=SETUP, lock_files=("lock.txt", "none.lock")) as bench:
        first = await time_of_setup(bench)
        assert await time_of_setup(bench) == first
        other = await commit_of(bench, "more", "echo more >> README.md")
        assert await time_of_setup(bench, other) == first
        locked = await commit_of(bench, "locked", "echo 2 > lock.txt")
        second = await time_of_setup(bench, locked)
        assert second != first
        if bench.worktrees.leases.overlays is not None:
            assert await time_of_setup(bench) == first, "one for each fingerprint"


async def test_only_what_git_ignores_is_kept_and_none_of_it_is_a_change(open_bench: OpenBench) -> None:
    async with open_bench(setup=SETUP) as bench, bench.worktrees.lease(bench.base) as lease:
        shown = await lease.workspace.run(
            "cat lock.txt deps/.bin/tool; ls; echo mine > mine.txt; rm deps/made", timeout_s=60
        )
        assert shown.output.split() == ["1", "tool", "README.md", "conf", "deps", "lock.txt"]
        change = await bench.commit(lease)
        assert isinstance(change, Change)
        assert change.paths == ("mine.txt",)


@pytest.mark.parametrize(
    "spoil",
    [
        "echo evil > deps/.bin/tool",
        "touch -d @0 deps/.bin/tool && echo EVIL > deps/.bin/tool && touch -d @0 deps/.bin/tool",
        "echo evil > deps/new",
        "rm deps/.bin/tool",
        "mv deps deps2; mkdir -p deps/.bin; cp -a deps2/. deps; echo evil > deps/.bin/tool; rm -r deps2",
    ],
)
async def test_what_a_tenant_spoils_does_not_reach_the_next(open_bench: OpenBench, spoil: str) -> None:
    async with open_bench(setup=SETUP) as bench:
        await time_of_setup(bench, then=spoil)
        async with bench.worktrees.lease(bench.base) as lease:
            shown = await lease.workspace.run("cat deps/.bin/tool; ls deps", timeout_s=60)
            assert shown.output == "tool\nmade\n"


async def test_what_a_tenant_leaves_beside_it_is_removed_and_odd_names_are_kept(open_bench: OpenBench) -> None:
    setup = "mkdir -p 'odd*[x] !' && date +%N > 'odd*[x] !/made'"
    async with open_bench(setup=setup) as bench:
        outputs = []
        for _ in range(2):
            async with bench.worktrees.lease(bench.base) as lease:
                run = await lease.workspace.run(
                    "cat 'odd*[x] !/made'; ls -d odd*; mkdir -p oddx; echo 1 > oddx/y; echo 1 > odd; echo 1 > '!x'",
                    timeout_s=60,
                )
                outputs.append(run.output.splitlines())
        assert outputs[0] == outputs[1]
        assert outputs[0][1:] == ["odd*[x] !"]


async def test_a_set_up_that_fails_says_so(open_bench: OpenBench) -> None:
    async with open_bench(setup="echo no such package; exit 3") as bench:
        for _ in range(2):
            with pytest.raises(EffectError, match="setup command failed with exit code 3") as caught:
                async with bench.worktrees.lease(bench.base):
                    pass
            assert caught.value.failure.kind == "configuration"
            assert "no such package" in caught.value.failure.evidence


async def test_a_set_up_that_only_a_later_commit_breaks_is_that_commit_s_fault(open_bench: OpenBench) -> None:
    async with open_bench(setup="! grep -q broken lock.txt", lock_files=("lock.txt",)) as bench:
        async with bench.worktrees.lease(bench.base):
            pass
        (bench.repository / "lock.txt").write_text("broken\n", encoding="utf-8")
        git(bench.repository, "add", "-A")
        git(bench.repository, "commit", "--quiet", "-m", "a lock")
        commit = sha_at(bench.repository)
        await bench.worktrees.store.git("fetch", "--quiet", str(bench.repository), commit)
        with pytest.raises(SetupFailedError) as caught:
            async with bench.worktrees.lease(commit):
                pass
        assert caught.value.check.exit_code == 1


async def test_a_file_that_is_committed_is_not_hidden_by_what_the_set_up_made(open_bench: OpenBench) -> None:
    async with open_bench(setup=SETUP) as bench:
        await time_of_setup(bench)
        git(bench.repository, "rm", "-q", "--cached", ".gitignore")
        tracked = bench.repository / "deps" / "made"
        tracked.parent.mkdir()
        tracked.write_text("committed\n", encoding="utf-8")
        git(bench.repository, "add", "-A", "--force", "deps")
        git(bench.repository, "commit", "--quiet", "-m", "deps are ours now")
        commit = sha_at(bench.repository)
        await bench.worktrees.store.git("fetch", "--quiet", str(bench.repository), commit)
        async with bench.worktrees.lease(commit) as lease:
            assert await lease.workspace.read("deps/made") == b"committed\n"


async def test_ignored_files_that_are_named_are_there(open_bench: OpenBench, repository: Path) -> None:
    (repository / ".worktreeinclude").write_text("conf/*.env\nlink.env\nREADME.md\nuntracked.txt\n", encoding="utf-8")
    for name, text in {"conf/a.env": "A=1\n", "b.env": "B=1\n", "c.env": "C=1\n", "untracked.txt": "no\n"}.items():
        (repository / name).write_text(text, encoding="utf-8")
    (repository / "link.env").symlink_to("/etc/passwd")
    (repository / "conf/a.env").chmod(0o755)
    async with open_bench(include=("/b.env",)) as bench:
        for _ in range(2):
            async with bench.worktrees.lease(bench.base) as lease:
                shown = await lease.workspace.run(
                    "cat conf/a.env b.env; test -x conf/a.env && ls -A . conf; echo x > b.env", timeout_s=60
                )
                assert shown.output.split() == [
                    *("A=1", "B=1", ".:", ".git", ".gitignore", "README.md", "b.env", "conf", "lock.txt"),
                    *("conf:", "a.env", "app"),
                ]


async def test_an_included_file_never_follows_a_link_out(
    open_bench: OpenBench, repository: Path, tmp_path: Path
) -> None:
    (repository / "conf2").mkdir()
    (repository / "conf2/a.env").write_text("A=1\n", encoding="utf-8")
    start = sha_at(repository)
    git(repository, "stash", "--all")
    (repository / "conf2").symlink_to(tmp_path)
    git(repository, "add", "conf2")
    git(repository, "commit", "--quiet", "-m", "a link where the folder is")
    linked = sha_at(repository)
    git(repository, "reset", "--quiet", "--hard", start)
    git(repository, "stash", "pop")
    async with open_bench(include=("*.env",)) as bench:
        await bench.worktrees.store.git("fetch", "--quiet", str(repository), linked)
        async with bench.worktrees.lease(linked) as lease:
            assert (await lease.workspace.run("readlink conf2", timeout_s=60)).output == f"{tmp_path}\n"
    assert not (tmp_path / "a.env").exists()


async def test_too_much_to_include_is_refused(open_bench: OpenBench, repository: Path) -> None:
    with (repository / "big.env").open("wb") as file:
        file.truncate(setup.MAX_BYTES + 1)
    with pytest.raises(FleetError, match="worktreeinclude"):
        async with open_bench(include=("*.env",)):
            pass


async def test_worktrees_have_ports_of_their_own(open_bench: OpenBench) -> None:
    async with open_bench(first_port=30_000, ports=7) as bench:
        async with bench.worktrees.lease(bench.base) as first, bench.worktrees.lease(bench.base) as second:
            ports = [(await lease.workspace.run("echo $FLEET_PORT", timeout_s=60)).output for lease in (first, second)]
            assert ports == ["30000\n", "30007\n"]
        async with bench.worktrees.lease(bench.base) as again:
            assert (await again.workspace.run("echo $FLEET_PORT", timeout_s=60)).output in ports
