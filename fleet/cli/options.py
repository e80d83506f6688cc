"""What options of the command line set: keys of the configuration, and limits of a run."""

from collections.abc import Mapping

KEYS = {
    "allow_red_base": "checks.allow_red_base",
    "base_url": "models.base_url",
    "flat": "run.flat",
    "gate": "checks.gate",
    "metrics": "metrics.listen",
    "not_between": "run.not_between",
    "otlp": "traces.otlp",
    "sandbox": "box.sandbox",
    "setup_network": "worktrees.setup_network",
    "tend_budget": "tend.dollars",
    "tend_rounds": "tend.rounds",
}
"""The key of the configuration that an option sets."""

WITH_NETWORK = "base"
"""What `--setup-network` sets: the set-up command has the network on the base, and nowhere else."""

Limits = Mapping[str, int | float | None]


def limits_of(
    *,
    workers: int | None = None,
    budget: float | None = None,
    minutes: float | None = None,
    tokens: int | None = None,
    attempts: int | None = None,
) -> dict[str, int | float | None]:
    """The limits that options set, by the names that they have in the configuration and in the journal."""
    budgets = {"dollars": budget, "minutes": minutes, "tokens": tokens, "attempts": attempts}
    return {"workers": workers, **{f"budget_{unit}": value for unit, value in budgets.items()}}


def flags(limits: Limits | None = None, **options: str | bool | float | None) -> dict[str, object]:
    """The keys of the configuration that options set. One that was not given sets none."""
    given = {KEYS[name]: _value(name, value) for name, value in options.items()} | {
        f"run.{name}": value for name, value in (limits or {}).items()
    }
    return {key: value for key, value in given.items() if value is not None}


def _value(option: str, value: str | bool | float | None) -> str | bool | float | None:
    if value is False:
        return None
    return WITH_NETWORK if option == "setup_network" and value else value
