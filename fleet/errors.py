"""What the operator can mend: printed as a message, never as a traceback. Imports nothing, so that help stays fast."""


class FleetError(Exception):
    """Something the operator can fix: what, where, what to do next."""

    exit_code = 3


class UsageError(FleetError):
    """The command, a file or a value is wrong, not the environment."""

    exit_code = 2
