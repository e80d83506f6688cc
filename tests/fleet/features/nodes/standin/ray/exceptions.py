class RayError(Exception):
    """As in Ray."""


class ActorDiedError(RayError):
    """As in Ray."""


class ActorUnavailableError(RayError):
    """As in Ray."""


class AsyncioActorExit(RayError):  # noqa: N818 - its name in Ray
    """As in Ray."""
