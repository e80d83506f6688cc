"""Branches of a remote are fetched and moved forward, never by force, and nothing of a repository's settings runs."""

import os
from pathlib import Path

import pytest

from fleet.core.base.ids import Sha
from fleet.errors import UsageError
from tests.worktrees.conftest import git, make_repository, sha_at
from worktrees.store.store import Store, open_store
from worktrees.target.publish import Remote, RemoteError, RemoteMovedError, remote_of, remote_urls
from worktrees.target.target import Target, inspect

REF = "refs/fleet/r1/pull/1"


@pytest.fixture
async def target(tmp_path: Path) -> Target:
    repository = make_repository(tmp_path / "shop")
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "remote.git")
    git(repository, "remote", "add", "origin", str(tmp_path / "remote.git"))
    return await inspect(repository)


@pytest.fixture
async def store(target: Target, tmp_path: Path) -> Store:
    return await open_store(tmp_path / "state", target, target.base)


@pytest.fixture
async def remote(target: Target, store: Store) -> Remote:
    return await remote_of(target, store.git, "origin", os.environ)


def commit_on(repository: Path, name: str) -> Sha:
    """A commit on main of a clone of its own, pushed there."""
    clone = repository.parent / f"clone-{name}"
    git(repository.parent, "clone", "--quiet", str(repository), clone.name)
    (clone / name).write_text(name, encoding="utf-8")
    git(clone, "add", name)
    git(clone, "commit", "--quiet", "-m", name)
    git(clone, "push", "--quiet", "origin", "main")
    return sha_at(clone)


async def test_a_branch_is_fetched_into_the_store_alone(target: Target, store: Store, remote: Remote) -> None:
    theirs = commit_on(Path(remote.url), "theirs")
    before = git(target.root, "for-each-ref")
    assert await remote.fetch("main", REF) == theirs
    assert await store.git.sha(REF) == theirs
    assert await remote.fetch("missing", REF) is None
    assert git(target.root, "for-each-ref") == before


async def test_a_branch_is_made_and_moved_forward(target: Target, remote: Remote) -> None:
    await remote.push(target.base, "fleet/r1")
    assert git(Path(remote.url), "rev-parse", "fleet/r1") == target.base
    theirs = commit_on(Path(remote.url), "theirs")
    await remote.fetch("main", REF)
    await remote.push(theirs, "fleet/r1")
    assert git(Path(remote.url), "rev-parse", "fleet/r1") == theirs


async def test_what_others_pushed_is_never_overwritten(target: Target, remote: Remote) -> None:
    theirs = commit_on(Path(remote.url), "theirs")
    with pytest.raises(RemoteMovedError, match="main on origin moved in the meantime"):
        await remote.push(target.base, "main")
    assert git(Path(remote.url), "rev-parse", "main") == theirs


async def test_a_refusal_of_the_remote_gives_its_reason(target: Target, remote: Remote) -> None:
    hook = Path(remote.url) / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'main is protected' >&2\nexit 1\n", encoding="utf-8")
    hook.chmod(0o755)
    with pytest.raises(RemoteError, match="main is protected") as refused:
        await remote.push(target.base, "other")
    assert not isinstance(refused.value, RemoteMovedError)


async def test_settings_of_the_repository_run_nothing(target: Target, store: Store, tmp_path: Path) -> None:
    """Hooks, and programs that its configuration names, are of whoever wrote it."""
    ran = tmp_path / "ran"
    for name in ("pre-push", "reference-transaction"):
        hook = target.git_dir / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {ran}\n", encoding="utf-8")
        hook.chmod(0o755)
    for key in ("remote.origin.uploadpack", "remote.origin.receivepack", "core.sshCommand", "credential.helper"):
        git(target.root, "config", key, f"touch {ran};")
    remote = await remote_of(target, store.git, "origin", os.environ)
    await remote.fetch("main", REF)
    await remote.push(target.base, "fleet/r1")
    assert not ran.exists()


async def test_the_users_own_settings_lead_to_the_remote(target: Target, store: Store, tmp_path: Path) -> None:
    git(target.root, "config", "remote.origin.url", "https://someone:secret@forge.example/acme/shop.git")
    settings = tmp_path / "gitconfig"
    settings.write_text(
        f'[url "{tmp_path}/remote.git"]\n\tinsteadOf = https://someone:secret@forge.example/acme/shop.git\n',
        encoding="utf-8",
    )
    remote = await remote_of(target, store.git, "origin", {**os.environ, "GIT_CONFIG_GLOBAL": str(settings)})
    assert await remote.fetch("main", REF) == target.base


async def test_a_token_in_the_address_is_not_shown(target: Target, store: Store) -> None:
    git(target.root, "config", "remote.origin.url", "http://someone:secret@127.0.0.1:9/acme/shop.git")
    remote = await remote_of(target, store.git, "origin", os.environ)
    with pytest.raises(RemoteError, match=r"origin can't be fetched from: .*127\.0\.0\.1") as failed:
        await remote.fetch("main", REF)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("url", ["--upload-pack=touch", "ext::sh -c touch", "", "fd::3", "https://a b", "-x:y"])
async def test_an_address_that_is_none_is_refused(target: Target, store: Store, url: str) -> None:
    git(target.root, "config", "remote.origin.url", url)
    with pytest.raises(UsageError, match="the URL of the remote"):
        await remote_of(target, store.git, "origin", os.environ)


async def test_a_remote_that_does_not_exist_gets_the_nearest(target: Target, store: Store) -> None:
    assert list(await remote_urls(target)) == ["origin"]
    with pytest.raises(UsageError, match=r"no remote 'orgin' in .*; did you mean 'origin'"):
        await remote_of(target, store.git, "orgin", os.environ)
