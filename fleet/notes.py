"""What a repository says of itself to those who work on it. Read from a commit, capped, and untrusted."""

from collections.abc import Iterable

from fleet.ports import DeskError, Repository

AGENTS = "AGENTS.md"
READMES = ("README.md", "README.rst", "README.txt", "README")
LIMIT = 20_000  # characters of one file
LAYOUT = 12_000  # characters of the list of files that all workers begin with


async def worker_notes(repository: Repository) -> str:
    """The repository's AGENTS.md, or nothing."""
    return (await _read(repository, (AGENTS,))).get(AGENTS, "")


async def planner_notes(repository: Repository) -> dict[str, str]:
    """AGENTS.md and the README, as far as they exist, by path."""
    found = await _read(repository, (AGENTS,))
    for name in READMES:
        if readme := await _read(repository, (name,)):
            return found | readme
    return found


def layout(paths: Iterable[str], limit: int = LAYOUT) -> str:
    """Where which files are, folder by folder, the shallow ones first; beyond the limit folders only with how many."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    lines, left = [], limit
    for folder in sorted(folders, key=lambda folder: (folder.count("/") + bool(folder), folder)):
        names = sorted(folders[folder])
        for line in (f"{folder or '.'}/: {' '.join(names)}", f"{folder or '.'}/: {len(names)} files"):
            if len(line) < left:
                lines.append(line)
                left -= len(line) + 1
                break
    return "\n".join(lines)


async def _read(repository: Repository, names: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = (await repository.read_file(name))[:LIMIT]
        except DeskError:  # there is none
            continue
    return found
