"""Whether a run can have its result branch in the user's repository."""

from fleet.errors import UsageError
from worktrees.git.program import text
from worktrees.target.target import Target


async def refuse_branch(target: Target, branch: str) -> None:
    """Raise `UsageError` if a branch is in the way. Git stores them like files: `a` and `a/b` exclude each other."""
    folder = branch.partition("/")[0]
    refs = text(await target.git("for-each-ref", "--format=%(refname)", f"refs/heads/{folder}"))
    branches = [ref.removeprefix("refs/heads/") for ref in refs.splitlines()]
    if folder in branches:
        why = f"so git can't create {branch!r}; rename it: git branch -m {folder} {folder}-1"
        raise UsageError(f"{target.root} has a branch {folder!r}, {why}")
    taken = next((name for name in branches if name == branch or name.startswith(f"{branch}/")), None)
    if taken is not None:
        remedy = f"choose another --name, or remove it: git branch -D {taken}"
        raise UsageError(f"{target.root} has a branch {taken!r} already; {remedy}")
