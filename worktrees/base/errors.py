"""Errors of the machine, as the engine records them: an `EffectError` of the kind `infrastructure`."""

from collections.abc import Iterator
from contextlib import contextmanager

from fleet.core.state.facts import Failure
from fleet.ports.worktrees import EffectError


def effect_error(summary: str, evidence: str = "") -> EffectError:
    """An error of git, a repository, the disk or the sandbox: not of the work."""
    return EffectError(Failure(kind="infrastructure", summary=summary, evidence=evidence))


@contextmanager
def os_errors(summary: str) -> Iterator[None]:
    """Raise an `OSError` of the block as an `EffectError` with this summary and the reason."""
    try:
        yield
    except OSError as error:
        raise effect_error(f"{summary}: {error}") from error
