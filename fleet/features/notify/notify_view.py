"""The views of notifications: the body for receivers, the list of sent ones, and the result of a channel test."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SentView:
    """A notification for one channel."""

    run: str
    """The name of the run."""
    channel: str
    """The NAME of its table `[notify.channels.NAME]`."""
    title: str
    """The title, on one line."""
    state: str
    """`waiting` (to be tried again), `sending` (may have arrived), `sent` or `given up`."""
    tries: int
    """The number of tries."""
    at: float
    """The creation time, in seconds since 1970."""
    why: str
    """Why the last try failed, or empty."""
    key: str
    """The idempotency key, by which a receiver can recognize duplicates."""


@dataclass(frozen=True, slots=True)
class NotifiedRunsView:
    """The runs whose notifications `fleet notify watch` sent."""

    runs: tuple[str, ...]
    """The names of the runs that were started with `[notify]`."""


@dataclass(frozen=True, slots=True)
class ChannelTestView:
    """The result of a test notification on one channel."""

    channel: str
    """The NAME of its table `[notify.channels.NAME]`."""
    kind: str
    """`webhook`, `command` or `desktop`."""
    delivered: bool
    """Whether the receiver accepted it."""
    why: str
    """Why the delivery failed, or empty."""


@dataclass(frozen=True, slots=True)
class CauseView:
    """A reason for a notification."""

    event: str
    """One of `notify.events`."""
    title: str
    """A summary of the event."""
    text: str
    """The details. Mentions, links and markup are removed from texts of models and repositories."""
    command: str
    """The command to run next, or empty."""
    since: float
    """The time of the event, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class NotificationView:
    """The body sent to webhooks and commands, unless the channel has a template."""

    key: str
    """The idempotency key. It stays the same when a notification is sent again."""
    run: str
    """The name of the run."""
    title: str
    """The title, on one line."""
    text: str
    """One line per cause."""
    link: str
    """The link to answer at, or empty if `notify.link` is not set."""
    causes: tuple[CauseView, ...]
    """The causes, at most ten."""
