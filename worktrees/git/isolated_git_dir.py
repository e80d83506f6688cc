"""Replaces the git folder of a foreign repository: links to its objects and refs, and our configuration.

A repository's configuration can make git run programs. More than 60 keys of git 2.55 name one, half of them contain a
name chosen by the repository, and each release adds some. Overriding them one by one would never be complete, so git
never reads that configuration. It gets this folder instead: links to objects and refs, and a new `config` with the few
values that define how objects, refs and files are stored (docs/decisions/0058).
"""

import os
import re
import shutil
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from worktrees.base.process import os_errors
from worktrees.git.program import ask_git, fields

PREFIX = "fleet-git-"
LINKED = (
    *("objects", "refs", "packed-refs", "reftable", "logs", "shallow", "worktrees"),
    *("info/exclude", "info/attributes"),
)
"""Links into the repository. A missing entry may appear later. Grafts are left out, because they change history."""
KEPT = frozenset(
    {
        "core.autocrlf",
        "core.checkstat",
        "core.eol",
        "core.filemode",
        "core.ignorecase",
        "core.logallrefupdates",
        "core.precomposeunicode",
        "core.repositoryformatversion",
        "core.sharedrepository",
        "core.sparsecheckout",
        "core.sparsecheckoutcone",
        "core.symlinks",
        "core.trustctime",
        "extensions.compatobjectformat",
        "extensions.objectformat",
        "extensions.refstorage",
        "extensions.relativeworktrees",
    }
)
"""The settings that git needs to read the store. None of them names a program, a file or an address."""
VALUE = re.compile(r"[A-Za-z0-9]{0,32}")


@dataclass(frozen=True)
class IsolatedGitDir:
    """The folder, which exists while something refers to it."""

    path: Path
    common_dir: Path
    """The folder that it replaces."""

    def renew_head(self) -> None:
        """Copy HEAD, which can't be a link. Git reads it to refuse to move a checked-out branch."""
        new = self.path / "HEAD.new"
        with os_errors(f"can't read {self.common_dir}"):
            new.write_bytes((self.common_dir / "HEAD").read_bytes())
            new.replace(self.path / "HEAD")


async def make_stand_in(common_dir: Path, *, bare: bool) -> IsolatedGitDir:
    """Create the replacement for the folder of a repository's objects and refs. Raises `EffectError`."""
    listed = await ask_git("config", "--file", str(common_dir / "config"), "--no-includes", "--null", "--list")
    with os_errors("can't create a folder for git"):
        _remove_forgotten()
        stand_in = IsolatedGitDir(Path(mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")), common_dir)
        weakref.finalize(stand_in, _remove, stand_in.path, os.getpid())
        (stand_in.path / "config").write_text(_config(fields(listed.stdout), bare=bare), encoding="utf-8")
        (stand_in.path / "info").mkdir()
        for name in LINKED:
            (stand_in.path / name).symlink_to(common_dir / name)
    stand_in.renew_head()
    return stand_in


def _config(listed: list[str], *, bare: bool) -> str:
    """Return the settings to keep, followed by ours. Git uses the last value of a key."""
    entries = (entry.partition("\n") for entry in listed)
    kept = {key: value for key, _, value in entries if key in KEPT and VALUE.fullmatch(value)}
    ours = {"core.bare": str(bare).lower(), "core.hooksPath": "/dev/null", "core.fsmonitor": "false"}
    lines = ((key.partition("."), value) for key, value in {**kept, **ours}.items())
    return "".join(f"[{section}]\n\t{name} = {value}\n" for (section, _, name), value in lines)


def _remove(path: Path, maker: int) -> None:
    if os.getpid() == maker:  # a fork ends without it
        shutil.rmtree(path, ignore_errors=True)


def _remove_forgotten() -> None:
    """Remove the folders that killed processes left."""
    for path, maker in _folders():
        if not Path(f"/proc/{maker}").exists():
            shutil.rmtree(path, ignore_errors=True)


def _folders() -> Iterator[tuple[Path, int]]:
    """The folders of this user, each with the process that created it."""
    for path in Path(gettempdir()).glob(f"{PREFIX}*-*"):
        maker = path.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):
            if maker.isdecimal() and path.lstat().st_uid == os.geteuid() and not path.is_symlink():
                yield path, int(maker)
