"""In the tree: files, names and amounts that the manager meets when it inspects what a worker left."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from fleet.core.base.ids import is_slug
from fleet.core.facts.facts import Failure
from fleet.core.plans.plan import Criterion
from fleet.ports.agents import WorkspaceError
from fleet.ports.worktrees import Change, Lease
from tests.attacks.conftest import CANARY
from tests.attacks.test_git import KINDS, plain, run
from tests.worktrees.conftest import OpenBench, git, make_repository
from worktrees.store.store import slots_dir


def on_disk(lease: Lease) -> Path:
    """The folder of a lease's changed files, as the manager sees it."""
    place = lease.workspace.place  # type: ignore[attr-defined]
    return Path(place.overlay.upper if place.overlay else place.tree)


def create(path: bytes) -> None:
    Path(os.fsdecode(path)).touch()


async def refusal(open_bench: OpenBench, script: str, kind: str, **changes: object) -> str:
    """Why the manager does not commit what a script did; empty where it does."""
    async with open_bench(lease=kind, **changes) as bench, bench.worktrees.lease(bench.base) as lease:
        await run(lease, script)
        outcome = await bench.commit(lease)
    return f"{outcome.kind} {outcome.evidence}" if isinstance(outcome, Failure) else ""


@pytest.mark.parametrize("kind", KINDS)
async def test_19_a_program_with_higher_rights_is_left(open_bench: OpenBench, kind: str) -> None:
    async with open_bench(lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
        await run(lease, "cp /bin/true tool; chmod 6755 tool")
        assert (on_disk(lease) / "tool").stat().st_mode & stat.S_ISUID
        change = await bench.commit(lease)
        assert isinstance(change, Change)
        assert not (on_disk(lease) / "tool").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
        listed = await bench.worktrees.store.git("ls-tree", change.commit, "tool")
    assert listed.startswith(b"100755 ")


@pytest.mark.parametrize("kind", KINDS)
async def test_21_a_link_leads_the_manager_out_of_the_tree(open_bench: OpenBench, tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CANARY, encoding="utf-8")
    async with open_bench(lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
        await run(lease, f"ln -s '{secret}' link; ln -s '{tmp_path}' folder")
        assert (on_disk(lease) / "link").read_text(encoding="utf-8") == CANARY
        for path in ("link", "folder/secret"):
            with pytest.raises(WorkspaceError):
                await lease.workspace.read(path)
        with pytest.raises(WorkspaceError):
            await lease.workspace.write("link", b"overwritten")
        failure = await bench.commit(lease)
    assert isinstance(failure, Failure)
    assert failure.evidence.splitlines() == [
        f"{name}: is a link that leaves the repository" for name in ("folder", "link")
    ]
    assert secret.read_text(encoding="utf-8") == CANARY


SPECIAL = {
    "a pipe": "mkfifo special",
    "a socket": "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"special\")' || mkfifo special",
}


@pytest.mark.parametrize("script", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("kind", KINDS)
async def test_22_a_file_that_blocks_who_opens_it(open_bench: OpenBench, script: str, kind: str) -> None:
    async with open_bench(lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
        await run(lease, script)
        opened = ["timeout", "0.5", "cat", str(on_disk(lease) / "special")]
        assert subprocess.run(opened, capture_output=True, check=False).returncode in {124, 1}  # noqa: ASYNC221
        failure = await bench.commit(lease)
    assert isinstance(failure, Failure)
    assert "special: is neither a file, a folder nor a link" in failure.evidence


ODD = ("--force", ":(top)", "-", "*", "a b", "ünï", "$(touch x)", "'\"", "back\\slash", "a;b", "~", "{a,b}")
REFUSED_NAMES = ("new\nline", "esc\x1b[31m", "bell\x07", "\u202eright", "tab\t")


@pytest.mark.parametrize("kind", KINDS)
async def test_34_names_that_are_options_patterns_or_commands_elsewhere(
    open_bench: OpenBench, tmp_path: Path, kind: str
) -> None:
    plain_repository = make_repository(tmp_path / "plain")
    (plain_repository / "--dry-run").touch()
    plain(plain_repository, "git add *")
    assert git(plain_repository, "diff", "--cached", "--name-only") == ""  # git read a name as an option
    async with open_bench(lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
        for name in ODD:
            await lease.workspace.write(f"odd/{name}", name.encode())
        change = await bench.commit(lease)
    assert isinstance(change, Change)
    assert set(change.paths) == {f"odd/{name}" for name in ODD}


@pytest.mark.parametrize("name", REFUSED_NAMES, ids=ascii)
async def test_34_names_that_garble_a_list_or_a_screen(open_bench: OpenBench, tmp_path: Path, name: str) -> None:
    plain_repository = make_repository(tmp_path / "plain")
    (plain_repository / name).touch()
    git(plain_repository, "add", "-A")
    assert name in git(plain_repository, "ls-files", "-z")
    async with open_bench() as bench, bench.worktrees.lease(bench.base) as lease:
        (on_disk(lease) / name).write_text("x", encoding="utf-8")
        failure = await bench.commit(lease)
    assert isinstance(failure, Failure)
    assert "control characters" in failure.evidence
    assert failure.evidence.isprintable()


async def test_34_names_that_are_not_text(open_bench: OpenBench) -> None:
    async with open_bench() as bench, bench.worktrees.lease(bench.base) as lease:
        create(os.fsencode(on_disk(lease)) + b"/\xff\xfe")
        failure = await bench.commit(lease)
    assert isinstance(failure, Failure)
    assert r"\xff\xfe" in failure.evidence


GIT_BY_ANOTHER_NAME = (".GIT", ".Git", "git~1", "GIT~2", ".git ", ".git.", ".g\u200cit", ".git::$INDEX_ALLOCATION")


@pytest.mark.parametrize("name", GIT_BY_ANOTHER_NAME, ids=ascii)
async def test_35_another_spelling_of_git_s_own_folder(open_bench: OpenBench, tmp_path: Path, name: str) -> None:
    plain_repository = make_repository(tmp_path / "plain")
    (plain_repository / "sub" / name).mkdir(parents=True)
    (plain_repository / "sub" / name / "config").touch()
    unprotected = ("-c", "core.protectHFS=false", "-c", "core.protectNTFS=false")
    git(plain_repository, *unprotected, "add", "-A", ok=False)
    taken = name in git(plain_repository, "ls-files", "-z")
    assert taken or name.casefold() == ".git"
    for kind in KINDS:
        async with open_bench(lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
            (on_disk(lease) / "sub" / name).mkdir(parents=True)
            (on_disk(lease) / "sub" / name / "config").touch()
            failure = await bench.commit(lease)
        assert isinstance(failure, Failure)
        assert "only git may use this name" in failure.evidence


TWINS = {
    "one of the base": ("echo x > readme.MD", "readme.MD collides with README.md"),
    "two new ones": ("echo x > new; echo y > New", "New collides with new"),
    "a folder": ("mkdir SRC; echo x > SRC/two.py", "SRC collides with src"),
    "composed letters": ("echo x > $'\\u00e9'; echo y > $'e\\u0301'", "collides with"),
}


@pytest.mark.parametrize("twin", TWINS)
async def test_35_names_that_differ_where_a_file_system_sees_no_difference(
    open_bench: OpenBench, tmp_path: Path, twin: str
) -> None:
    script, says = TWINS[twin]
    plain_repository = make_repository(tmp_path / "plain", {"README.md": "x", "src/one.py": "x"})
    before = git(plain_repository, "ls-files").count("\n")
    plain(plain_repository, f"LC_ALL=C.UTF-8; {script}; git add -A")
    assert git(plain_repository, "ls-files").count("\n") > before
    for kind in KINDS:
        assert says in await refusal(open_bench, script, kind)


async def test_35_a_repository_may_keep_the_twins_it_has(open_bench: OpenBench, tmp_path: Path) -> None:
    plain_repository = make_repository(tmp_path / "twins", {"Notes.txt": "x", "notes.txt": "y"})
    async with open_bench(plain_repository) as bench, bench.worktrees.lease(bench.base) as lease:
        await run(lease, "echo z > notes.txt; echo z > other")
        assert isinstance(await bench.commit(lease), Change)
        await run(lease, "mv notes.txt NOTES.txt")
        failure = await bench.commit(lease, "two")
        assert isinstance(failure, Failure)
        assert "NOTES.txt collides with Notes.txt" in failure.evidence


MALICIOUS = (
    ";touch${IFS}x",
    "--upload-pack=x",
    "../../x",
    "a..b",
    "a/../b",
    "x.lock",
    "-x",
    "$(x)",
    "a b",
    "a\nb",
    "@{-1}",
)


@pytest.mark.parametrize("name", MALICIOUS)
def test_36_a_planner_names_a_subtask_to_be_run_as_a_command(name: str) -> None:
    """Git takes the first for a branch; as the id of a subtask none of them is taken."""
    assert plain(Path("/"), "git check-ref-format 'refs/heads/;touch${IFS}x' && echo taken") == "taken\n"
    assert not is_slug(name)


@pytest.mark.parametrize("kind", KINDS)
async def test_38_a_file_that_is_far_too_large(open_bench: OpenBench, tmp_path: Path, kind: str) -> None:
    plain_repository = make_repository(tmp_path / "plain")
    plain(plain_repository, "truncate -s 3M blob; git add blob")
    assert git(plain_repository, "ls-files", "blob") == "blob"
    says = await refusal(open_bench, "truncate -s 3M blob", kind, max_file_mb=1)
    assert "blob: has 3145728 bytes, and the limit is 1048576" in says


@pytest.mark.parametrize("kind", KINDS)
async def test_38_far_too_many_files(open_bench: OpenBench, kind: str) -> None:
    script = "mkdir many; cd many; seq 500 | xargs touch"
    assert await refusal(open_bench, script, kind) == ""
    assert "contains more than" in await refusal(open_bench, script, kind, max_files=100)


DEEP = """
for round in $(seq 12); do
    mkdir -p $(printf 'deep/%.0s' $(seq 100)); cd $(printf 'deep/%.0s' $(seq 100))
done; echo x > file; cd /repo; mkdir -p closed/more; touch closed/more/file; chmod 000 closed/more closed
"""


@pytest.mark.parametrize("kind", KINDS)
async def test_39_folders_that_cannot_be_removed(open_bench: OpenBench, tmp_path: Path, kind: str) -> None:
    (tmp_path / "plain").mkdir()
    plain(tmp_path / "plain", DEEP.replace("/repo", '"$OLDPWD"').split('cd "$OLDPWD"')[0])
    with pytest.raises(
        OSError, match="File name too long"
    ):  # by name, as `remove_small` does; rmtree depends on Python
        list(os.scandir(tmp_path.joinpath("plain", *["deep"] * 1200)))
    subprocess.run(["rm", "-rf", str(tmp_path / "plain")], check=True)  # noqa: ASYNC221
    async with open_bench(lease=kind) as bench:
        folder = slots_dir(bench.worktrees.store, "r1")
        async with bench.worktrees.lease(bench.base) as lease:
            await run(lease, DEEP)
            failure = await bench.commit(lease)
            assert isinstance(failure, Failure)
            assert "folders deep" in failure.evidence
        async with bench.worktrees.lease(bench.base) as lease:
            assert await run(lease, "git status --short; ls") == "README.md\nsrc\n"
    assert not folder.exists()


async def test_40_a_file_that_is_needed_is_hidden_from_the_commit(open_bench: OpenBench) -> None:
    needed = Criterion(criterion="the file is there", run="grep -q 1 needed.log")
    async with open_bench() as bench:
        async with bench.worktrees.lease(bench.base) as lease:
            await run(lease, "echo 1 > needed.log; echo x > mine.txt")
            assert (await lease.check(needed)).passed  # `*.log` is ignored, but in this worktree it exists
            change = await bench.commit(lease)
            assert isinstance(change, Change)
        async with bench.worktrees.lease(change.commit) as clean:
            assert not (await clean.check(needed)).passed
