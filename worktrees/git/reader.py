"""Read commits, branches, history and files of a repository through GitPython. Only this module uses that library.

A `git.Repo` leaks descriptors and `cat-file` children until it is closed, and hangs when threads share one. So every
call opens its own inside one thread and closes it there. This module does not write, and does not run programs
configured by the repository: GitPython starts its programs with our environment and options. Its object classes support
only SHA-1 ids, so objects are read as bytes from its `cat-file`. Repositories with SHA-256 ids are read in the same
way.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from secrets import token_hex
from subprocess import PIPE
from threading import Event, Timer
from typing import TYPE_CHECKING, TypeVar

from anyio import to_thread

from fleet.core.base.ids import Sha
from worktrees.base.process import effect_error, kill_descendants
from worktrees.git.program import SAFE_OPTIONS, Git, environment, text

if TYPE_CHECKING:
    import git as gitpython

OPTIONS = (*SAFE_OPTIONS, "core.commitGraph=false", "i18n.logOutputEncoding=UTF-8", "grep.patternType=basic")
EVERY_BRANCH = ("--ignore-missing", "--branches", "--remotes", "HEAD", "--")
"""The options that select all branches, and HEAD if it is detached."""
ANSWER_S = 120.0  # for one query on a busy machine
Result = TypeVar("Result")


async def read(git: Git, question: "Callable[[gitpython.Repo], Result]", *, answer_s: float = ANSWER_S) -> Result:
    """Run one of the queries below in a thread. Raises `EffectError`."""
    try:
        return await to_thread.run_sync(_ask_in_time, git, question, answer_s)
    except _SilentError:  # its programs were killed, so they did not answer
        try:
            return await to_thread.run_sync(_ask_in_time, git, question, answer_s)
        except _SilentError as error:
            raise effect_error(f"git did not answer within {answer_s:g} s") from error


class _SilentError(Exception):
    """The programs of a query were killed, because they did not answer."""


def _ask_in_time(git: Git, question: "Callable[[gitpython.Repo], Result]", answer_s: float) -> Result:
    """GitPython waits for its programs without a limit, so this function kills them at our limit."""
    mark, killed = f"FLEET_READER={token_hex(8)}", Event()

    def kill() -> None:
        killed.set()
        kill_descendants(marked=mark.encode())

    timer = Timer(answer_s, kill)
    timer.daemon = True
    timer.start()
    try:
        return _ask(git, question, mark)
    except Exception:
        if killed.is_set():  # caused by its broken answer
            raise _SilentError from None
        raise
    finally:
        timer.cancel()


def _ask(git: Git, question: "Callable[[gitpython.Repo], Result]", mark: str) -> Result:
    import git as gitpython  # noqa: PLC0415 - imported only when a repository's history is read

    path = git.stand_in.path if git.stand_in is not None else git.git_dir
    config = {"GIT_GRAFT_FILE": "/dev/null", "GIT_CONFIG_COUNT": str(len(OPTIONS))}
    for number, option in enumerate(OPTIONS):
        config[f"GIT_CONFIG_KEY_{number}"], config[f"GIT_CONFIG_VALUE_{number}"] = option.split("=", 1)
    name, _, value = mark.partition("=")
    try:
        with gitpython.Repo(path, expand_vars=False) as repo:
            repo.git.update_environment(**environment(), **config, **git.place, **{name: value})
            return question(repo)
    except (gitpython.exc.GitError, gitpython.exc.ODBError, OSError, ValueError) as error:
        raise effect_error(f"can't read {git.work_tree or git.git_dir}: {error}") from error


# ---- questions -------------------------------------------------------------------------------------------------------


def branches(repo: "gitpython.Repo") -> tuple[str, ...]:
    """Return the names of the local branches."""
    return tuple(head.name for head in repo.heads)


def branches_and_tags(repo: "gitpython.Repo") -> tuple[str, ...]:
    return (*branches(repo), *(tag.name for tag in repo.tags))


def branch_of_head(repo: "gitpython.Repo") -> str | None:
    """Return the checked-out branch, or None if HEAD is detached."""
    return repo.git.symbolic_ref("--short", "--quiet", "HEAD", with_exceptions=False) or None


def file_at(repo: "gitpython.Repo", commit: Sha, path: str, *, most: int) -> tuple[bytes, int] | str | None:
    """Return up to `most` bytes of a file in a commit and its size, another object's kind, or None if missing."""
    kind, size, content = next(_stored_objects(repo, [f"{commit}:{path}"], most=most))
    return (content, size) if kind == "blob" else kind


def files_at(repo: "gitpython.Repo", commit: Sha, paths: Sequence[str], *, most: int) -> dict[str, bytes]:
    """Return the contents of the existing files among `paths`, up to `most` bytes each."""
    entries = {path: file_at(repo, commit, path, most=most) for path in paths}
    return {path: entry[0] for path, entry in entries.items() if isinstance(entry, tuple)}


def history(repo: "gitpython.Repo", commit: Sha, *, path: str | None, limit: int) -> str:
    """Return the newest commits up to `commit`, one line each: id, date, author, subject."""
    options = ("--no-commit-header", "--abbrev=10", "--format=%h %as %an: %s", f"--max-count={limit}")
    paths = [path] if path is not None else []
    return text(repo.git.rev_list(*options, commit, "--", *paths, stdout_as_string=False))


def matching_commits(repo: "gitpython.Repo", *, pattern: str, since: float | None) -> list[tuple[Sha, bytes]]:
    """Return the commits on all branches with such a line in the message, as stored, newest first."""
    return _stored_commits(repo, "--topo-order", f"--grep={pattern}", *_since(since), *EVERY_BRANCH)


def commits_between(repo: "gitpython.Repo", base: Sha, tip: Sha) -> list[tuple[Sha, bytes]]:
    """Return the commits above `base` up to `tip`, as stored, oldest first."""
    return _stored_commits(repo, "--topo-order", "--reverse", f"{base}..{tip}")


def count_commits(repo: "gitpython.Repo", *, since: float | None) -> int:
    """Return the number of commits on all branches."""
    return int(repo.git.rev_list("--count", *_since(since), *EVERY_BRANCH))


def merges_with(repo: "gitpython.Repo", named: set[Sha]) -> dict[Sha, frozenset[Sha]]:
    """Return the merges on a branch among the given commits, each with the commits that it merged."""
    merges = named & set(repo.git.rev_list("--merges", *EVERY_BRANCH).split())
    return {merge: frozenset(map(Sha, repo.git.rev_list(f"{merge}^1..{merge}").split())) for merge in merges}


def _since(since: float | None) -> tuple[str, ...]:
    return () if since is None else (f"--since-as-filter={datetime.fromtimestamp(since, UTC).isoformat()}",)


def _stored_commits(repo: "gitpython.Repo", *options: str) -> list[tuple[Sha, bytes]]:
    ids = [Sha(id_) for id_ in repo.git.rev_list(*options).split()]
    return [(id_, content) for id_, (_, _, content) in zip(ids, _stored_objects(repo, ids), strict=True)]


def _stored_objects(
    repo: "gitpython.Repo", names: Iterable[str], *, most: int | None = None
) -> Iterator[tuple[str | None, int, bytes]]:
    """Return the kind, size and content of each object from one `cat-file`. The kind is empty if a name has no object.

    With `most`, read at most that many bytes of the first object, and stop.
    """
    program = repo.git.cat_file("--batch", istream=PIPE, as_process=True)
    for name in names:
        program.stdin.write(os.fsencode(name) + b"\n")
        program.stdin.flush()
        *_, kind, size = program.stdout.readline().split()  # or "NAME missing"
        if not size.isdigit():
            yield None, 0, b""
            continue
        yield kind.decode(), int(size), program.stdout.read(int(size) if most is None else min(int(size), most))
        if most is not None:
            return
        program.stdout.read(1)
