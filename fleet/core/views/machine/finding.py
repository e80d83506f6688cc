"""What the doctor found about this machine and the models' service."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of this machine, or with `--live` of the models' service."""

    what: str
    """What was checked: `git`, `sandbox`, `model`, `gate` and so on; with `--live` also `live`, `settings`, `spent`."""
    ok: bool
    """Whether a run can work with it."""
    says: str
    """The result, for a person."""
    fix: str = ""
    """What to do about it; empty where nothing needs to be done."""
    dollars: float | None = None
    """What a call to the service cost; null where none was made."""
