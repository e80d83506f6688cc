"""Through git: programs left for the manager's git to run, and changes to refs, objects and locks."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from fleet.core.facts.facts import Failure
from fleet.ports.worktrees import Change, Lease
from tests.worktrees.conftest import RUN, OpenBench, fingerprint, git, make_repository
from worktrees.git.program import ask_git

KINDS = ("overlay", "pool")
MINE = "git -c user.name=w -c user.email=w@localhost"
NESTED = {
    23: """
        git init -q sub; echo x > sub/file; git -C sub add -A; {mine} -C sub commit -qm x
        git -C sub config core.fsmonitor "touch {marker}; false"; echo y >> sub/file""",
    24: """
        git init -q sub; echo '* filter=x' > sub/.gitattributes; echo x > sub/file; git -C sub add -A
        {mine} -C sub commit -qm x; git -C sub config filter.x.clean "touch {marker}; cat"; echo y > sub/file""",
    25: """
        mkdir hidden; git init -q --separate-git-dir hidden/git sub; printf 'gitdir: ../hidden/git' > sub/.git
        git -C sub config core.fsmonitor "touch {marker}; false"; echo x > sub/file; git -C sub add -A
        {mine} -C sub commit -qm x; echo y >> sub/file""",
}


async def run(lease: Lease, script: str) -> str:
    result = await lease.workspace.run(script, timeout_s=60)
    assert result.exit_code == 0, result.output
    return result.output


def plain(at: Path, script: str, *, ok: bool = True) -> str:
    done = subprocess.run(["bash", "-ec", script], cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not ok, done.stderr
    return done.stdout


@pytest.mark.parametrize("row", NESTED)
@pytest.mark.parametrize("kind", KINDS)
async def test_23_24_25_a_repository_in_the_tree_runs_programs_of_its_own(
    open_bench: OpenBench, tmp_path: Path, row: int, kind: str
) -> None:
    marker = tmp_path / "marker"
    script = NESTED[row].format(mine=MINE, marker=marker)
    project = make_repository(tmp_path / "plain")
    plain(project, script)
    marker.unlink(missing_ok=True)
    plain(project, "git status; git add -A; git status; git diff", ok=False)
    assert marker.exists(), "the attack does not work without a defence"
    marker.unlink()
    async with open_bench(lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
        await run(lease, script.replace(str(marker), "/repo/marker") + "; rm -f marker")
        failure = await bench.commit(lease)
        planted = list(bench.settings.state_dir.rglob("marker"))
    assert isinstance(failure, Failure)
    assert failure.kind == "bounds"
    assert "sub/.git: only git may use this name" in failure.evidence
    assert (planted, marker.exists()) == ([], False)


async def test_26_the_worktree_s_own_git_folder_is_replaced(open_bench: OpenBench, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    script = f"rm -rf .git && git init -q . && git config core.fsmonitor 'touch {marker}; false'"
    async with open_bench(sandbox="none", lease="pool") as bench, bench.worktrees.lease(bench.base) as lease:
        await run(lease, script)
        plain(Path(lease.workspace.root), "git status")
        assert marker.exists()
        marker.unlink()
        assert isinstance(await bench.commit(lease), Failure)  # even without a box: it is inspected before git runs
        assert not marker.exists()
    for kind in KINDS:
        async with open_bench(lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
            tried = await lease.workspace.run(f"echo x > mine.txt; {script}", timeout_s=20)
            assert "resource busy" in tried.output.lower()
            assert (await lease.workspace.run("mv .git away || echo x > .git", timeout_s=20)).exit_code != 0
            change = await bench.commit(lease)
        assert isinstance(change, Change)
        assert change.paths == ("mine.txt",)


HOOKS = """
here=$(git rev-parse --absolute-git-dir)
mkdir -p "$here/hooks"; cd "$here/hooks"; printf '#!/bin/sh\\ntouch {marker}\\n' > pre-commit; chmod +x pre-commit
cp pre-commit post-index-change; cp pre-commit reference-transaction; cd "$OLDPWD"
printf '[core]\\n\\tfsmonitor = "touch {marker}; false"\\n' > "$here/more"
git config include.path "$here/more"; git config extensions.worktreeConfig true
cp "$here/more" "$here/config.worktree"; echo x > mine.txt
"""


async def test_27_hooks_and_configuration_are_planted(open_bench: OpenBench, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    project = make_repository(tmp_path / "plain")
    plain(project, HOOKS.format(marker=marker))
    plain(project, "git add -A", ok=False)
    assert marker.exists()
    marker.unlink()
    for kind in KINDS:
        async with open_bench(lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
            await run(lease, HOOKS.format(marker=marker))
            assert isinstance(await bench.commit(lease), Change)
            tip = await bench.worktrees.integrator.tip(RUN)
            merged = await bench.worktrees.integrator.merge(tip, [await bench.change("two", {kind: "1\n"})])
            assert await bench.worktrees.integrator.advance(RUN, new=merged.tip, old=tip)
        assert not marker.exists()


async def test_28_programs_that_the_user_configured_run_on_a_worker_s_files(
    open_bench: OpenBench, repository: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    for key in ("filter.x.clean", "filter.x.smudge", "diff.x.textconv", "diff.x.command", "merge.x.driver"):
        git(repository, "config", key, f"touch {marker}; cat")
    (repository / ".gitattributes").write_text("*.txt filter=x diff=x merge=x\n", encoding="utf-8")
    (repository / "a.txt").write_text("1\n", encoding="utf-8")
    plain(repository, f"{MINE} add -A; {MINE} commit -qm attributes")
    assert marker.exists()
    marker.unlink()
    for kind in KINDS:
        async with open_bench(lease=kind) as bench:
            marker.unlink(missing_ok=True)  # to open the user's repository, its own programs may look at its own files
            first = await bench.change("one", {"a.txt": "2\n", "b.txt": "x\n"})
            second = await bench.change("two", {"a.txt": "3\n"})
            await bench.worktrees.diff(bench.base, first.commit)
            merged = await bench.worktrees.integrator.merge(bench.base, [first, second])
            assert len(merged.conflicts) == 1
        assert not marker.exists()


async def test_29_attributes_change_how_git_merges(open_bench: OpenBench, tmp_path: Path) -> None:
    project = make_repository(tmp_path / "plain", {"a": "1\n"})
    sides = f"""
        echo 'a merge=union' > .gitattributes; git add -A; {MINE} commit -qm union
        git switch -qc one; echo 2 > a; {MINE} commit -qam one; git switch -q -; echo 3 > a; {MINE} commit -qam two
        {MINE} merge -q one -m merged; cat a"""
    assert plain(project, sides).endswith("3\n2\n")  # both, without a question
    rules = {"merge": "* merge=union", "own": "* merge=ours", "hidden": "*.py -diff", "left out": "src export-ignore"}
    async with open_bench() as bench:
        for where in (".gitattributes", "src/.gitattributes"):
            async with bench.worktrees.lease(bench.base) as lease:
                await run(lease, f"printf '%s\\n' {' '.join(map(shlex.quote, rules.values()))} > {where}")
                failure = await bench.commit(lease)
            assert isinstance(failure, Failure)
            assert (failure.kind, where in failure.evidence) == ("bounds", True)


REFS = """
git update-ref refs/fleet/r1/stolen HEAD; git update-ref -d refs/fleet/r1/tip; git update-ref -d refs/fleet/r1/base
git branch -f other HEAD; git tag -f t; echo x >> README.md; git stash -q; git worktree prune; :
"""


async def test_30_refs_are_moved_and_deleted(open_bench: OpenBench, repository: Path) -> None:
    for sandbox, kind in (("none", "pool"), ("bubblewrap", "overlay"), ("bubblewrap", "pool")):
        before = fingerprint(repository)
        async with open_bench(sandbox=sandbox, lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
            refs = await bench.worktrees.store.git("for-each-ref")
            await lease.workspace.run(REFS, timeout_s=20)
            assert (await bench.worktrees.store.git("for-each-ref") == refs) == (sandbox == "bubblewrap")
        assert fingerprint(repository) == before


SPOIL = """
for folder in $(git rev-parse --git-path objects) /fleet/objects/0; do
    for file in $(find "$folder" -type f 2>/dev/null | head -20); do
        chmod u+w "$file"; echo spoiled > "$file"; rm -f "$file"
    done
done; :
"""


async def test_31_objects_that_all_share_are_spoiled(open_bench: OpenBench) -> None:
    for kind in KINDS:
        async with open_bench(lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
            await lease.workspace.run(SPOIL, timeout_s=20)
            assert (await bench.worktrees.store.git.ask("fsck", "--strict")).exit_code == 0
    async with open_bench(sandbox="none", lease="pool") as bench, bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.run(SPOIL, timeout_s=20)
        assert (await bench.worktrees.store.git.ask("fsck", "--strict")).exit_code != 0


LOCKS = """
here=$(git rev-parse --absolute-git-dir); common=$(git rev-parse --git-common-dir)
touch "$here/index.lock" "$here/HEAD.lock" "$common/config.lock" "$common/packed-refs.lock"
mkdir -p "$common/refs/fleet"; touch "$common/refs/fleet/r1.lock"; echo x > mine.txt
"""


async def test_32_locks_are_planted(open_bench: OpenBench, tmp_path: Path) -> None:
    project = make_repository(tmp_path / "plain")
    plain(project, LOCKS)
    assert "index.lock" in git(project, "add", "-A", ok=False) or not git(project, "diff", "--cached", "--name-only")
    for kind in KINDS:
        async with open_bench(lease=kind) as bench, bench.worktrees.lease(bench.base) as lease:
            await run(lease, LOCKS)
            assert isinstance(await bench.commit(lease), Change)
            planted = [path for path in bench.settings.state_dir.rglob("*.lock") if path.parent.name != "slots"]
            assert [path for path in planted if not re.search(r"(scratch|leases/\d+)/git/", str(path))] == []


async def test_33_a_submodule_names_a_command_as_its_address(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    address = f"ext::sh -c touch% {marker}"
    plain(tmp_path, f"git -c protocol.ext.allow=always clone -q '{address}' x", ok=False)
    assert marker.exists()
    marker.unlink()
    answer = await ask_git("clone", "-q", "--", address, str(tmp_path / "y"))
    assert answer.exit_code != 0
    assert not marker.exists()


@pytest.mark.parametrize("kind", KINDS)
async def test_33_a_submodule_is_added(open_bench: OpenBench, kind: str) -> None:
    async with open_bench(lease=kind) as opened:
        for script in (
            "git init -q sub; :",
            "printf '[submodule \"x\"]\\n\\tpath=x\\n\\turl=ext::sh\\n' > .gitmodules",
        ):
            async with opened.worktrees.lease(opened.base) as lease:
                await run(lease, script)
                assert isinstance(await opened.commit(lease), Failure), script
        async with opened.worktrees.lease(opened.base) as lease:
            await run(lease, "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; echo x > mine.txt")
            assert "160000" in await run(lease, "git ls-files --stage sub")  # it worked, on the worker's own index
            change = await opened.commit(lease)
            assert isinstance(change, Change)
            assert change.paths == ("mine.txt",)
