"""Errors that you can fix. They are printed without a traceback. Imports nothing, so that help stays fast."""

HINT = "hint: "


class FleetError(Exception):
    """An error that you can fix. The message names the cause and the value, the hint a command or an action."""

    exit_code = 3
    code = "environment"
    """The error code in `--json`; one for each exit code that is an error."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.hint = message, hint

    @property
    def text(self) -> str:
        """The message, and the hint on a separate line. `str(error)` is both on one line."""
        return f"{self.message}\n{HINT}{self.hint}" if self.hint else self.message


def read_error(text: str) -> FleetError:
    """Read back the `text` of an error that another process printed."""
    message, _, hint = text.rpartition(f"\n{HINT}")
    return FleetError(message, hint=hint) if message else FleetError(text)


def first_error(error: BaseException) -> BaseException:
    """Return the first exception of a group at any depth, or the exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class UsageError(FleetError):
    """The command, a file or a value is wrong."""

    exit_code = 2
    code = "usage"
