"""What worktrees need besides their files: set up once, kept while it holds, never a tenant's to spoil."""

from pathlib import Path

import pytest

from fleet.ports import Broken, Change, FleetError
from tests.worktrees.conftest import Bench, OpenBench, git, make_repository
from worktrees import include
from worktrees.settings import LeaseKind

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


async def made(bench: Bench, commit: str | None = None, *, then: str = "true") -> str:
    """When the set-up that a lease sees was made; then something is done there."""
    async with bench.hands.lease(commit or bench.base) as lease:
        result = await lease.desk.run(f"cat deps/made && {then}", timeout_s=60)
        assert result.exit_code == 0, result.output
        return result.output.split()[0]


async def changed(bench: Bench, subtask: str, script: str) -> str:
    async with bench.hands.lease(bench.base) as lease:
        await lease.desk.run(script, timeout_s=60)
        change = await bench.commit(lease, subtask)
    assert isinstance(change, Change), change
    return change.commit


async def test_what_the_set_up_makes_is_kept_while_nothing_it_rests_on_changes(open_bench: OpenBench) -> None:
    async with open_bench(setup=SETUP, lock_files=("lock.txt", "none.lock")) as bench:
        first = await made(bench)
        assert await made(bench) == first
        other = await changed(bench, "more", "echo more >> README.md")
        assert await made(bench, other) == first
        locked = await changed(bench, "locked", "echo 2 > lock.txt")
        second = await made(bench, locked)
        assert second != first
        if bench.hands.overlays is not None:
            assert await made(bench) == first, "one for each fingerprint"


async def test_only_what_git_ignores_is_kept_and_none_of_it_is_a_change(open_bench: OpenBench) -> None:
    async with open_bench(setup=SETUP) as bench, bench.hands.lease(bench.base) as lease:
        seen = await lease.desk.run("cat lock.txt deps/.bin/tool; ls; echo mine > mine.txt; rm deps/made", timeout_s=60)
        assert seen.output.split() == ["1", "tool", "README.md", "conf", "deps", "lock.txt"]
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
async def test_what_a_tenant_spoils_is_not_there_for_the_next(open_bench: OpenBench, spoil: str) -> None:
    async with open_bench(setup=SETUP) as bench:
        await made(bench, then=spoil)
        async with bench.hands.lease(bench.base) as lease:
            seen = await lease.desk.run("cat deps/.bin/tool; ls deps", timeout_s=60)
            assert seen.output == "tool\nmade\n"


async def test_what_a_tenant_leaves_beside_it_is_removed_and_odd_names_are_kept(open_bench: OpenBench) -> None:
    setup = "mkdir -p 'odd*[x] !' && date +%N > 'odd*[x] !/made'"
    async with open_bench(setup=setup) as bench:
        seen = []
        for _ in range(2):
            async with bench.hands.lease(bench.base) as lease:
                run = await lease.desk.run(
                    "cat 'odd*[x] !/made'; ls -d odd*; mkdir -p oddx; echo 1 > oddx/y; echo 1 > odd; echo 1 > '!x'",
                    timeout_s=60,
                )
                seen.append(run.output.splitlines())
        assert seen[0] == seen[1]
        assert seen[0][1:] == ["odd*[x] !"]


async def test_a_set_up_that_fails_says_so(open_bench: OpenBench) -> None:
    async with open_bench(setup="echo no such package; exit 3") as bench:
        for _ in range(2):
            with pytest.raises(Broken, match="set-up command failed with exit code 3") as caught:
                async with bench.hands.lease(bench.base):
                    pass
            assert caught.value.failure.kind == "configuration"
            assert "no such package" in caught.value.failure.evidence


async def test_a_file_that_is_committed_is_not_hidden_by_what_the_set_up_made(open_bench: OpenBench) -> None:
    async with open_bench(setup=SETUP) as bench:
        await made(bench)
        git(bench.repository, "rm", "-q", "--cached", ".gitignore")
        tracked = bench.repository / "deps" / "made"
        tracked.parent.mkdir()
        tracked.write_text("committed\n", encoding="utf-8")
        git(bench.repository, "add", "-A", "--force", "deps")
        git(bench.repository, "commit", "--quiet", "-m", "deps are ours now")
        commit = git(bench.repository, "rev-parse", "HEAD")
        await bench.hands.store.git("fetch", "--quiet", str(bench.repository), commit)
        async with bench.hands.lease(commit) as lease:
            assert await lease.desk.read("deps/made") == b"committed\n"


async def test_ignored_files_that_are_named_are_there(open_bench: OpenBench, repository: Path) -> None:
    (repository / ".worktreeinclude").write_text("conf/*.env\nlink.env\nREADME.md\nuntracked.txt\n", encoding="utf-8")
    for name, text in {"conf/a.env": "A=1\n", "b.env": "B=1\n", "c.env": "C=1\n", "untracked.txt": "no\n"}.items():
        (repository / name).write_text(text, encoding="utf-8")
    (repository / "link.env").symlink_to("/etc/passwd")
    (repository / "conf/a.env").chmod(0o755)
    async with open_bench(include=("/b.env",)) as bench:
        for _ in range(2):
            async with bench.hands.lease(bench.base) as lease:
                seen = await lease.desk.run(
                    "cat conf/a.env b.env; test -x conf/a.env && ls -A . conf; echo x > b.env", timeout_s=60
                )
                assert seen.output.split() == [
                    *("A=1", "B=1", ".:", ".git", ".gitignore", "README.md", "b.env", "conf", "lock.txt"),
                    *("conf:", "a.env", "app"),
                ]


async def test_an_included_file_never_follows_a_link_out(
    open_bench: OpenBench, repository: Path, tmp_path: Path
) -> None:
    (repository / "conf2").mkdir()
    (repository / "conf2/a.env").write_text("A=1\n", encoding="utf-8")
    start = git(repository, "rev-parse", "HEAD")
    git(repository, "stash", "--all")
    (repository / "conf2").symlink_to(tmp_path)
    git(repository, "add", "conf2")
    git(repository, "commit", "--quiet", "-m", "a link where the folder is")
    linked = git(repository, "rev-parse", "HEAD")
    git(repository, "reset", "--quiet", "--hard", start)
    git(repository, "stash", "pop")
    async with open_bench(include=("*.env",)) as bench:
        await bench.hands.store.git("fetch", "--quiet", str(repository), linked)
        async with bench.hands.lease(linked) as lease:
            assert (await lease.desk.run("readlink conf2", timeout_s=60)).output == f"{tmp_path}\n"
    assert not (tmp_path / "a.env").exists()


async def test_too_much_to_include_is_refused(
    open_bench: OpenBench, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(include, "MOST_BYTES", 100)
    (repository / "big.env").write_text("x" * 101, encoding="utf-8")
    with pytest.raises(FleetError, match="worktreeinclude"):
        async with open_bench(include=("*.env",)):
            pass


async def test_worktrees_have_ports_of_their_own(open_bench: OpenBench) -> None:
    async with open_bench(first_port=30_000, ports=7) as bench:
        async with bench.hands.lease(bench.base) as one, bench.hands.lease(bench.base) as two:
            seen = [(await lease.desk.run("echo $FLEET_PORT", timeout_s=60)).output for lease in (one, two)]
            assert seen == ["30000\n", "30007\n"]
        async with bench.hands.lease(bench.base) as again:
            assert (await again.desk.run("echo $FLEET_PORT", timeout_s=60)).output in seen
