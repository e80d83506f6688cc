"""Errors of ours in the loop itself: in a rule of policy, in what should be running, in a command that fails silently.

What raises is left out and reported to the operator once; everything else continues. A rule is skipped until the state
changes, which the report already does. A command is set aside. If nothing is left to do or to wait for, the run ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from fleet.core.history.evolve import Step, applied
from fleet.core.policy.decide import RULES, Rule
from fleet.core.policy.effects import Command
from fleet.core.state.facts import Fact, RunEnded
from fleet.core.state.state import RunState
from fleet.engine.errors.internal_errors import unwrapped, warning_about
from fleet.ports.journal import Clock

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(slots=True)
class Bugs:
    """The errors of ours that one engine has met."""

    clock: Clock
    rules: Sequence[Rule] = RULES
    _aside: set[Command] = field(default_factory=set)
    """Commands that ended without a fact that says how it went, after all the tries that they have."""
    _broken: dict[Rule, RunState] = field(default_factory=dict)
    """The rules that raised, each with the state in which it did so last."""
    _unreported: list[Fact] = field(default_factory=list)
    _reported: dict[tuple[str, type[Exception]], str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there are any, all of them recorded: a record is a new state, in which skipped rules run again."""
        return bool(self._reported) and not self._unreported

    def report(self, step: str, error: Exception) -> None:
        """Warn the operator, with the trace, of what was interrupted."""
        key = (step, type(unwrapped(error)))  # its text may differ each time: an address, a time
        if key not in self._reported:
            warning = warning_about(error, f"an error of fleet while it {step}", self.clock.now())
            self._reported[key] = warning.text
            self._unreported.append(warning)

    def taken(self) -> Sequence[Fact]:
        """The warnings that were not recorded yet."""
        taken, self._unreported = self._unreported, []
        return taken

    def guard(
        self, step: str, ask: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result | None:
        """What a function returns; None where it raises."""
        try:
            return ask(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the loop outlives any one question that it asks
            self.report(step, error)
            return None

    def stopped(self, command: Command, error: Exception) -> None:
        """Set a command aside that ended without a fact that says how it went."""
        self._aside.add(command)
        self.report(f"carried out {command}", error)

    def is_aside(self, command: Command) -> bool:
        return command in self._aside

    def decide(self, state: RunState, now: float) -> list[Step]:
        """Every decision that follows from a state, with the state after it. A rule that raises decides nothing."""
        new = list[Step]()
        while not state.ended:
            decided = next((found for rule in self.rules if (found := self._ask(rule, state, now))), None)
            if decided is None:
                break
            new += decided
            _, state = decided[-1]
        return new

    def _ask(self, rule: Rule, state: RunState, now: float) -> list[Step] | None:
        if self._broken.get(rule) is state:  # it would raise again
            return None
        try:
            return applied(state, rule(state, now))
        except Exception as error:  # noqa: BLE001 - the other rules still decide
            self._broken[rule] = state
            self.report(f"decided ({rule.__name__.strip('_')})", error)
            return None

    def ending(self, state: RunState) -> Fact:
        """The end of a run in which errors of ours have left nothing to do."""
        return RunEnded(at=self.clock.now(), ending="partial" if state.commits else "failed", why=self.why(state))

    def why(self, state: RunState) -> str:
        what = "; ".join(self._reported.values())
        return f"{what}. Nothing else is left to do; report it, and continue with `fleet resume {state.run}`"
