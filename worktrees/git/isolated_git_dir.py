"""A stand-in for the git folder of a repository that is not ours: its objects and refs, under a configuration of ours.

A repository's configuration can make git run programs: more than 60 keys of git 2.55 name one, half of them with a
name of the repository's choice inside, and each release adds some. Overriding them one by one is never finished, so
git never reads that configuration at all. It is given this folder instead: links to what holds objects and refs, and a
new `config` with the few values that say how objects, refs and files are stored (docs/decisions/0058).
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
"""What is the repository's own: what is missing may come later. Grafts are left out: they change history."""
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
"""The settings that git needs to understand what is stored. None of them names a program, a file or an address."""
VALUE = re.compile(r"[A-Za-z0-9]{0,32}")


@dataclass(frozen=True)
class IsolatedGitDir:
    """The folder, until nothing refers to it any more."""

    path: Path
    common_dir: Path
    """The folder that it replaces."""

    def renew_head(self) -> None:
        """Copy HEAD, which can't be a link: git reads it to refuse what would move a branch that is checked out."""
        new = self.path / "HEAD.new"
        with os_errors(f"{self.common_dir} can't be read"):
            new.write_bytes((self.common_dir / "HEAD").read_bytes())
            new.replace(self.path / "HEAD")


async def make_stand_in(common_dir: Path, *, bare: bool) -> IsolatedGitDir:
    """The stand-in for the folder of a repository's objects and refs. Raises `EffectError`."""
    listed = await ask_git("config", "--file", str(common_dir / "config"), "--no-includes", "--null", "--list")
    with os_errors("a folder for git can't be made"):
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
    """The settings that are kept, and ours after them. The last value of a key counts, as it does for git."""
    entries = (entry.partition("\n") for entry in listed)
    kept = {key: value for key, _, value in entries if key in KEPT and VALUE.fullmatch(value)}
    ours = {"core.bare": str(bare).lower(), "core.hooksPath": "/dev/null", "core.fsmonitor": "false"}
    lines = ((key.partition("."), value) for key, value in {**kept, **ours}.items())
    return "".join(f"[{section}]\n\t{name} = {value}\n" for (section, _, name), value in lines)


def _remove(path: Path, maker: int) -> None:
    if os.getpid() == maker:  # a fork ends without it
        shutil.rmtree(path, ignore_errors=True)


def _remove_forgotten() -> None:
    """Remove the folders of processes that were killed."""
    for path, maker in _folders():
        if not Path(f"/proc/{maker}").exists():
            shutil.rmtree(path, ignore_errors=True)


def _folders() -> Iterator[tuple[Path, int]]:
    """The folders of this user, each with the process that made it."""
    for path in Path(gettempdir()).glob(f"{PREFIX}*-*"):
        maker = path.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):
            if maker.isdecimal() and path.lstat().st_uid == os.geteuid() and not path.is_symlink():
                yield path, int(maker)
