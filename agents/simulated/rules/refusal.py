"""A request that the service refuses."""


class RequestError(Exception):
    """The request is refused: 400, unless another status is named."""

    def __init__(self, message: str, status: int = 400, *, retry_after: float | None = None, family: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.family = family
        """The family of models whose limits the response names."""
        self.retry_after = retry_after
