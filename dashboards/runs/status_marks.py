"""Marks and short texts: each state has a sign and a word, so that no meaning depends on colour alone."""

Span = tuple[str, str]
"""Text, and its tone: a name such as `good` or `dim`, never a colour."""

MARKS: dict[str, Span] = {
    # subtasks
    "waiting": ("·", "dim"),
    "ready": ("○", ""),
    "verifying": ("◐", "check"),
    "merged": ("✔", "good"),
    "dropped": ("-", "dim"),
    "escalated": ("?", "attention"),
    "split": ("┬", "dim"),
    # attempts
    "starting": ("○", "dim"),
    "working": ("●", "busy"),
    "checking": ("◐", "check"),
    "landing": ("▲", "queue"),
    # runs
    "landed": ("✔", "good"),
    "running": ("●", "busy"),
    "planning": ("●", "busy"),
    "paused": ("‖", "attention"),
    "draining": ("‖", "busy"),
    "awaiting approval": ("?", "attention"),
    "waiting for an answer": ("?", "attention"),
    "waiting for the planner": ("…", "busy"),
    "over budget": ("!", "attention"),
    # cells of the map of subtasks, where they have other names
    "asks": ("?", "attention"),
    "gone": ("-", "dim"),
    "failed": ("✘", "bad"),
}
"""The sign and the tone of the states of subtasks, attempts and runs. Everything else is a failure."""


def marked(state: str) -> Span:
    """A state with its sign."""
    sign, tone = MARKS.get(state, ("✘", "bad"))
    return f"{sign} {state}", tone


def age(seconds: float) -> str:
    """A duration in at most six characters."""
    seconds = max(0, int(seconds))
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes}m{rest:02}"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}" if hours < 100 else f"{hours // 24}d{hours % 24:02}"  # noqa: PLR2004 - four days


def model_name(model: str) -> str:
    """A model without its maker's prefix."""
    return model.removeprefix("claude-")
