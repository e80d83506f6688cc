"""What the doctor found about this machine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of this machine."""

    what: str
    """What was checked: `git`, `sandbox`, `model`, `gate` and so on."""
    ok: bool
    """Whether a run can work with it."""
    says: str
    """The result, for a person."""
    fix: str = ""
    """What to do about it; empty where nothing needs to be done."""
