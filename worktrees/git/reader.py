"""Reads commits, branches, history and files of a repository through GitPython: the one file that knows that library.

A `git.Repo` leaks descriptors and `cat-file` children until it is closed, and hangs when threads share one. So every
call opens its own inside one thread and closes it there. Nothing here writes, and no setting of the repository runs:
the programs that GitPython starts get the environment and the options of ours. Its classes for objects know SHA-1 ids
only; so objects are read as bytes from its `cat-file`, and repositories with SHA-256 ids are read like all others.
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
"""The options that name all branches, and HEAD where it names a commit."""
ANSWER_S = 120.0  # for one question, on a machine that is starved
Result = TypeVar("Result")


async def read(git: Git, question: "Callable[[gitpython.Repo], Result]", *, answer_s: float = ANSWER_S) -> Result:
    """Ask one of the questions below of a repository, in a thread. Raises `EffectError`."""
    try:
        return await to_thread.run_sync(_ask_in_time, git, question, answer_s)
    except _SilentError:  # its programs were killed: no answer from these
        try:
            return await to_thread.run_sync(_ask_in_time, git, question, answer_s)
        except _SilentError as error:
            raise effect_error(f"git did not answer within {answer_s:g} s") from error


class _SilentError(Exception):
    """The programs of a question were killed, because they did not answer."""


def _ask_in_time(git: Git, question: "Callable[[gitpython.Repo], Result]", answer_s: float) -> Result:
    """GitPython waits for its programs without a limit, so they are killed at ours."""
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
        if killed.is_set():  # whatever its broken answer led to
            raise _SilentError from None
        raise
    finally:
        timer.cancel()


def _ask(git: Git, question: "Callable[[gitpython.Repo], Result]", mark: str) -> Result:
    import git as gitpython  # noqa: PLC0415 - only what reads a repository's history pays for it

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
        raise effect_error(f"{git.work_tree or git.git_dir} can't be read: {error}") from error


# ---- questions -------------------------------------------------------------------------------------------------------


def branches(repo: "gitpython.Repo") -> tuple[str, ...]:
    """The names of the local branches."""
    return tuple(head.name for head in repo.heads)


def branches_and_tags(repo: "gitpython.Repo") -> tuple[str, ...]:
    return (*branches(repo), *(tag.name for tag in repo.tags))


def branch_of_head(repo: "gitpython.Repo") -> str | None:
    """The branch that is checked out; None where HEAD names a commit."""
    return repo.git.symbolic_ref("--short", "--quiet", "HEAD", with_exceptions=False) or None


def file_at(repo: "gitpython.Repo", commit: Sha, path: str, *, most: int) -> tuple[bytes, int] | str | None:
    """Up to `most` bytes of a file of a commit, and its size. For another kind of object its kind; None for nothing."""
    kind, size, content = next(_stored_objects(repo, [f"{commit}:{path}"], most=most))
    return (content, size) if kind == "blob" else kind


def files_at(repo: "gitpython.Repo", commit: Sha, paths: Sequence[str], *, most: int) -> dict[str, bytes]:
    """The contents of the files of a commit among `paths`, up to `most` bytes each."""
    entries = {path: file_at(repo, commit, path, most=most) for path in paths}
    return {path: entry[0] for path, entry in entries.items() if isinstance(entry, tuple)}


def history(repo: "gitpython.Repo", commit: Sha, *, path: str | None, limit: int) -> str:
    """The newest commits up to `commit`, one line each: id, date, author, subject."""
    options = ("--no-commit-header", "--abbrev=10", "--format=%h %as %an: %s", f"--max-count={limit}")
    paths = [path] if path is not None else []
    return text(repo.git.rev_list(*options, commit, "--", *paths, stdout_as_string=False))


def matching_commits(repo: "gitpython.Repo", *, pattern: str, since: float | None) -> list[tuple[Sha, bytes]]:
    """The commits on all branches whose message has such a line, as they are stored, the newest first."""
    return _stored_commits(repo, "--topo-order", f"--grep={pattern}", *_since(since), *EVERY_BRANCH)


def commits_between(repo: "gitpython.Repo", base: Sha, tip: Sha) -> list[tuple[Sha, bytes]]:
    """The commits above `base` up to `tip` as they are stored, the oldest first."""
    return _stored_commits(repo, "--topo-order", "--reverse", f"{base}..{tip}")


def count_commits(repo: "gitpython.Repo", *, since: float | None) -> int:
    """The number of commits on all branches."""
    return int(repo.git.rev_list("--count", *_since(since), *EVERY_BRANCH))


def merges_with(repo: "gitpython.Repo", named: set[Sha]) -> dict[Sha, frozenset[Sha]]:
    """The merges on a branch among the named commits, each with the commits that it brought."""
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
    """The kind, the size and the content of each object, from one `cat-file`; no kind where a name has no object.

    With `most`, reads at most that many bytes of the first object, and no other.
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
