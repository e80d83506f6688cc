"""The views of `fleet init` and `fleet try`."""

from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import Sha
from fleet.core.base.output import advice, key_lines
from fleet.core.facts.facts import CheckRun, Failure, SetupRun

TriedVerdict = Literal["green", "no tests", "red", "setup failed", "not possible", "not tried"]


@dataclass(frozen=True, slots=True)
class TriedCommandView:
    """One candidate for testing the repository or a part of it, and its result."""

    folder: str
    """The folder of the repository, or empty for the entire repository."""
    kind: str
    """The kind of project."""
    gate: str
    """The gate command of the candidate."""
    setup: str
    """The setup command, or empty if there is none."""
    why: str
    """Why it was tried: evidence in the repository, or a dependency that the previous trial lacked."""
    verdict: TriedVerdict
    """`green`: passed; `no tests`: passed, but did not run any tests; `red`: failed; `setup failed`: the setup command
    failed; `not possible`: the sandbox could not be created; `not tried`: it requires a permission that was not given,
    or trials are disabled."""
    seconds: float
    """The duration of worktree creation, setup command and gate."""
    causes: tuple[str, ...]
    """The relevant lines of the output, which programs of the repository wrote."""


@dataclass(frozen=True, slots=True)
class UserConfigKey:
    """A key that the result needs and that only your own configuration can set."""

    key: str
    """The dotted name of the key."""
    value: str | tuple[str, ...]
    """The required value."""
    why: str
    """Why it is required."""
    written: bool
    """Whether it was written to your own configuration file."""


@dataclass(frozen=True, slots=True)
class InitView:
    """The result of `fleet init`."""

    repository: str
    """The root of the repository."""
    file: str
    """The path of `fleet.toml`."""
    written: bool
    """Whether the file was written or already has this content."""
    green: bool
    """Whether the gate in `text` passed in the sandbox."""
    gate: str
    """The gate, or empty if no test command was found or none passed."""
    text: str
    """The content of the file, or empty if no candidate passed."""
    tried: tuple[TriedCommandView, ...]
    """The candidates in the order they were tried; with `--dry-run`, those that would be tried."""
    left_out: tuple[str, ...]
    """Folders with tests that the gate does not cover, because no candidate passed there."""
    user_keys: tuple[UserConfigKey, ...]
    """Keys that the result needs in your own configuration."""
    notes: tuple[str, ...]
    """Notes about the repository, and open decisions."""


# ---- trial view ------------------------------------------------------------------------------------------------------
# A trial runs the setup command and the gate, or another command, on a commit without a run.


Verdict = Literal["green", "red", "setup failed", "no gate", "not possible"]


@dataclass(frozen=True, slots=True)
class TrialView:
    """The result of the setup command and the gate, or another command, on a commit."""

    repository: str
    """Path of the repository."""
    base: Sha
    """Commit that was tested."""
    base_name: str
    """Name of the base as given by the user: a branch, a tag or `HEAD`."""
    verdict: Verdict
    """`green`: passed; `red`: the command failed; `setup failed`: the setup command failed; `no gate`: the setup
    command passed, and no gate is configured; `not possible`: the worktree or the sandbox could not be created."""
    seconds: float
    """The duration of worktree creation, setup command and command."""
    setup: SetupRun | None
    """The setup command, or null if none is configured."""
    check: CheckRun | None
    """The gate or the command, or null if there is none or it was not reached."""
    failure: Failure | None
    """Why the command could not be run."""
    causes: tuple[str, ...]
    """The relevant lines of the output, which programs of the repository wrote."""
    advice: tuple[str, ...]
    """How to fix the problem."""
    logs: str
    """The base folder of the log paths in `setup` and `check`."""
    notes: tuple[str, ...]
    """Notes about the repository."""

    @property
    def failed(self) -> CheckRun | None:
        """The failed command, if any."""
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
    """Build the view of a trial, with its verdict and advice."""
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
        return "setup failed"
    if failure is not None:
        return "not possible"
    if check is None:
        return "no gate"
    return "green" if check.passed else "red"


def _failed(setup: SetupRun | None, check: CheckRun | None) -> CheckRun | None:
    commands = (setup.check if setup is not None else None, check)
    return next((each for each in commands if each is not None and not each.passed), None)
