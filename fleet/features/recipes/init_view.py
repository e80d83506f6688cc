"""The result of `fleet init`: what it tried in the box, what was green, and what it wrote."""

from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import Sha
from fleet.core.base.output import advice, key_lines
from fleet.core.facts.facts import CheckRun, Failure, SetupRun

TriedVerdict = Literal["green", "no tests", "red", "set-up failed", "not possible", "not tried"]


@dataclass(frozen=True, slots=True)
class TriedView:
    """One way to test the repository, or a part of it, and what came of it."""

    folder: str
    """The part of the repository; empty for all of it."""
    kind: str
    """The kind of project, in words."""
    gate: str
    """The command that was tried as the gate."""
    setup: str
    """The set-up command; empty if there is none."""
    why: str
    """Why this was tried: what in the repository speaks for it, or what the try before it lacked."""
    verdict: TriedVerdict
    """`green`; `no tests`: it passed, and said that it ran no test; `red`; `set-up failed`; `not possible`: no box
    could be made; `not tried`: it needs something that was not allowed, or nothing was to be tried."""
    seconds: float
    """Of worktree, set-up and gate together."""
    causes: tuple[str, ...]
    """The lines of the output that matter. The repository's programs wrote them."""


@dataclass(frozen=True, slots=True)
class YourKey:
    """A key that only your own configuration may set, and that the result needs."""

    key: str
    """Its dotted name."""
    value: str | tuple[str, ...]
    """The value that the result needs."""
    why: str
    """What needs it."""
    written: bool
    """Whether it is in your own configuration file now."""


@dataclass(frozen=True, slots=True)
class InitView:
    """What `fleet init` found, tried and wrote."""

    repository: str
    """Its root."""
    file: str
    """The path of the `fleet.toml`."""
    written: bool
    """Whether the file was written or is already as it would be written."""
    green: bool
    """Whether the gate in `text` was green in the box."""
    gate: str
    """Empty if no test command was found, or none was green."""
    text: str
    """The content of the file; empty if nothing was green."""
    tried: tuple[TriedView, ...]
    """In the order in which it was tried; with `--dry-run`, what would be tried."""
    left_out: tuple[str, ...]
    """Folders with tests of which nothing was green; they are not in the gate."""
    yours: tuple[YourKey, ...]
    """Keys of your own configuration that the result needs."""
    notes: tuple[str, ...]
    """What is unusual about the repository, or was left to you."""


# ---- trial view ------------------------------------------------------------------------------------------------------
# A trial: what the set-up command and the gate, or another command, did on a commit, without a run.


Verdict = Literal["green", "red", "set-up failed", "no gate", "not possible"]


@dataclass(frozen=True, slots=True)
class TrialView:
    """What the set-up command and the gate, or another command, did on a commit."""

    repository: str
    base: Sha
    base_name: str
    verdict: Verdict
    """`green`; `red`: the command failed; `set-up failed`; `no gate`: only the set-up was tried, which passed;
    `not possible`: no worktree or no box could be made."""
    seconds: float
    """All of it: worktree, set-up and command."""
    setup: SetupRun | None
    """Null where no set-up command is configured."""
    check: CheckRun | None
    """The gate or the command; null if there is none, or nothing was ready for it."""
    failure: Failure | None
    """Why the command could not be run."""
    causes: tuple[str, ...]
    """The lines of the output that matter. The repository's programs wrote them."""
    advice: tuple[str, ...]
    """What to do about them."""
    logs: str
    """The folder above the logs that `setup` and `check` name."""
    notes: tuple[str, ...]
    """What is unusual about the repository."""

    @property
    def failed(self) -> CheckRun | None:
        """The command that failed, if one did."""
        return _failed(self.setup, self.check)


def trial_view(
    *,
    repository: str,
    base: Sha,
    base_name: str,
    seconds: float,
    setup: SetupRun | None,
    check: CheckRun | None,
    failure: Failure | None,
    logs: str,
    notes: tuple[str, ...],
) -> TrialView:
    """The trial with its verdict, the lines that matter, and what to do about them."""
    causes: tuple[str, ...] = ()
    if (failed := _failed(setup, check)) is not None:
        causes = failed.causes
    elif failure is not None:
        causes = key_lines(f"{failure.summary}\n{failure.evidence}")
    return TrialView(
        repository=repository,
        base=base,
        base_name=base_name,
        verdict=_verdict(setup, check, failure),
        seconds=seconds,
        setup=setup,
        check=check,
        failure=failure,
        causes=causes,
        advice=advice(causes),
        logs=logs,
        notes=notes,
    )


def _verdict(setup: SetupRun | None, check: CheckRun | None, failure: Failure | None) -> Verdict:
    if setup is not None and not setup.check.passed:
        return "set-up failed"
    if failure is not None:
        return "not possible"
    if check is None:
        return "no gate"
    return "green" if check.passed else "red"


def _failed(setup: SetupRun | None, check: CheckRun | None) -> CheckRun | None:
    commands = (setup.check if setup is not None else None, check)
    return next((each for each in commands if each is not None and not each.passed), None)
