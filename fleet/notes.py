"""What a repository says of itself to those who work on it. Read from a commit, capped, and untrusted."""

from fleet.ports import DeskError, Repository

AGENTS = "AGENTS.md"
READMES = ("README.md", "README.rst", "README.txt", "README")
LIMIT = 20_000  # characters of one file


async def worker_notes(repository: Repository) -> str:
    """The repository's AGENTS.md, or nothing."""
    return (await _read(repository, (AGENTS,))).get(AGENTS, "")


async def planner_notes(repository: Repository) -> dict[str, str]:
    """AGENTS.md and the README, as far as they exist, by path."""
    return await _read(repository, (AGENTS,)) | dict(list((await _read(repository, READMES)).items())[:1])


async def _read(repository: Repository, names: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = (await repository.read_file(name))[:LIMIT]
        except DeskError:  # there is none
            continue
    return found
