"""Which repository a folder belongs to, found without git: it runs no program and reads no configuration."""

from pathlib import Path

from fleet.errors import UsageError

LARGEST = 4096  # bytes of a `.git` file; git's own name one path


def root_of(path: Path) -> Path | None:
    """The root of the working tree that contains `path`."""
    folder = _absolute(path)
    return next((folder for folder in (folder, *folder.parents) if (folder / ".git").exists()), None)


def git_folder(path: Path) -> Path | None:
    """The folder with the objects of the repository that contains `path`; all its worktrees share that folder."""
    folder = _absolute(path)
    for candidate in (folder, *folder.parents):
        inside = candidate / ".git"
        if inside.is_dir():
            return inside.resolve()
        if (named := _named_folder(inside)) is not None:
            shared = _first_line(named / "commondir")
            return (named / shared).resolve() if shared else named
        if (candidate / "HEAD").is_file() and all((candidate / name).is_dir() for name in ("objects", "refs")):
            return candidate.resolve()  # a bare repository, or inside of `.git`
    return None


def is_same_repository(recorded: str, here: Path | None) -> bool:
    """Whether the repository that a run has recorded is the one with the git folder `here`."""
    return here is not None and (git_folder(Path(recorded)) == here if Path(recorded).exists() else False)


def _absolute(path: Path) -> Path:
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise UsageError(
            "the current folder no longer exists", hint="change to the repository: cd REPOSITORY"
        ) from error


def _named_folder(file: Path) -> Path | None:
    """The folder that the `.git` file of a linked worktree or of a submodule names."""
    mark, _, named = _first_line(file).partition(": ")
    return (file.parent / named).resolve() if mark == "gitdir" and named else None


def _first_line(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(LARGEST).decode("utf-8", "surrogateescape").partition("\n")[0]
    except (OSError, ValueError):
        return ""
