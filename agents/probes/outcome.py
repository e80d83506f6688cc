"""What was tried at a service, and what came back."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from agents.models.answer import CallFault
from fleet.core.base.capabilities import USES, Capability

Verdict = Literal["works", "fails", "not tried"]
SETTINGS_BELOW = "see the settings below"
_FIXES = {
    "refused": "check the key, its permissions and models.api_key_env",
    "gone": "name a model that the service has: models.worker, planner.model, rungs or models.fallbacks",
    "limit": "the service limits calls now; try again later",
    "outage": "check the network and models.base_url",
}


@dataclass(frozen=True, slots=True)
class Came:
    """What came back."""

    verdict: Verdict
    text: str
    fix: str = ""
    """What to do about it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one probe, in plain words."""

    about: str
    """A model and its effort, or what else was tried."""
    tried: str
    came: Came
    dollars: float = 0.0
    """What it cost, by the table of prices."""


def faulty(fault: CallFault) -> Came:
    """What a fault means, and what to do about it."""
    return Came(
        "fails", fault.message, _FIXES.get(fault.kind, "the service refuses this request; its message says why")
    )


def with_or_without(text: str, lacking: Collection[Capability]) -> Came:
    """An answer, perhaps only because something was left out."""
    if not lacking:
        return Came("works", text)
    named = ", ".join(f"{name}: {USES[name]}" for name in sorted(lacking))
    return Came("fails", f"{text}, but only without {named}", SETTINGS_BELOW)


LEFT_OUT = Came("not tried", "the service lacks what it needs")


@dataclass(slots=True)
class Missing:
    """What the service was found to lack, by model."""

    configured: dict[str, frozenset[Capability]]
    """What each model is configured to lack."""
    found: dict[str, set[Capability]] = field(default_factory=dict)
    had: dict[str, set[Capability]] = field(default_factory=dict)
    """What each model was asked for, and answered."""

    def of(self, model: str) -> frozenset[Capability]:
        """What to leave out of a request to a model."""
        return self.configured.get(model, frozenset()) | frozenset(self.found.get(model, ()))

    def lacks(self, model: str, *capabilities: Capability) -> None:
        self.found.setdefault(model, set()).update(capabilities)

    def has(self, model: str, *capabilities: Capability) -> None:
        self.had.setdefault(model, set()).update(capabilities)

    def settings(self) -> str:
        """The keys of `[models]` that say so, with what is configured already; empty if there is nothing to add."""
        if not any(self.found.values()):
            return ""
        found = set[Capability]().union(*self.found.values())
        nowhere = {name for name in found if not any(name in had for had in self.had.values())}
        usual = frozenset.intersection(*self.configured.values()) | nowhere
        single = {model: sorted(self.of(model) - usual) for model in self.configured}
        lines = [f"without = {_listed(sorted(usual))}"] if usual else []
        if tables := [f'"{model}" = {_listed(names)}' for model, names in single.items() if names]:
            lines.append(f"model_without = {{ {', '.join(tables)} }}")
        return "; ".join(lines)


def _listed(names: Collection[str]) -> str:
    quoted = (f'"{name}"' for name in names)
    return f"[{', '.join(quoted)}]"
