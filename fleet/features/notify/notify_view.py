"""Notifications: as a receiver gets them, as they were sent, and the result of a test of the channels."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SentView:
    """A notification for one channel."""

    run: str
    """The name of the run."""
    channel: str
    """The NAME of its table `[notify.channels.NAME]`."""
    title: str
    """What it says, in a line."""
    state: str
    """`waiting` (it is tried again), `sending` (it may have arrived), `sent` or `given up`."""
    tries: int
    """How often it was about to be sent."""
    at: float
    """When it was made, in seconds since 1970."""
    why: str
    """Why the last try failed; empty if none did."""
    key: str
    """By which a receiver knows it again."""


@dataclass(frozen=True, slots=True)
class NotifiedRunsView:
    """For whom `fleet notify watch` sent what was due."""

    runs: tuple[str, ...]
    """The names of the runs that were started with `[notify]`."""


@dataclass(frozen=True, slots=True)
class ChannelTestView:
    """The delivery of a test to one channel."""

    channel: str
    """The NAME of its table `[notify.channels.NAME]`."""
    kind: str
    """`webhook`, `command` or `desktop`."""
    delivered: bool
    """Whether the receiver took it."""
    why: str
    """Why not; empty if it was delivered."""


@dataclass(frozen=True, slots=True)
class CauseView:
    """A reason for a notification."""

    event: str
    """Which of `notify.events` it is."""
    title: str
    """What happened."""
    text: str
    """The details; what a model or a repository wrote has lost mentions, links and markup."""
    command: str
    """What to type; empty if there is nothing to do."""
    since: float
    """In seconds since 1970."""


@dataclass(frozen=True, slots=True)
class NotificationView:
    """What a webhook or a command is given, unless a template says otherwise."""

    key: str
    """Unique: the same notification has the same key whenever it is sent again."""
    run: str
    """The name of the run."""
    title: str
    """One line."""
    text: str
    """A line for each cause."""
    link: str
    """Where to answer; empty unless `notify.link` is set."""
    causes: tuple[CauseView, ...]
    """The reasons for it, ten at most."""
