"""Errors that the operator can fix: printed as a message without a traceback. Imports nothing, so that help is fast."""


class FleetError(Exception):
    """The operator can fix this. The message says what is wrong and where, the hint what to do next."""

    exit_code = 3
    code = "environment"
    """What `--json` prints: one word for each exit code that is an error."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.hint = message, hint


def first_error(error: BaseException) -> BaseException:
    """The first exception in a group, however deep; one that is no group as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class UsageError(FleetError):
    """The command, a file or a value is wrong, and not the environment."""

    exit_code = 2
    code = "usage"
