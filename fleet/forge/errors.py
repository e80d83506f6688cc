"""Why a forge did not do what was asked, by what the caller does next."""

from fleet.errors import FleetError


class ForgeError(FleetError):
    """A forge refused, or could not be understood. Where it was to change something, it may have: read it back."""


class ProgramMissingError(ForgeError):
    """`gh` or `glab` is not installed."""


class NotLoggedInError(ForgeError):
    """The program has no account on this host, or its token is not valid any more."""


class NotFoundError(ForgeError):
    """There is no such repository, issue or pull request, or the account may not see it."""


class RateLimitedError(ForgeError):
    """The forge answers nothing more for a while."""

    def __init__(self, message: str, *, retry_at: float | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_at = retry_at
        """When it answers again, as it says itself; None where it does not say."""
