"""What happened, a line for each event."""

from dashboards.run_follower import Event, WatchedRun
from dashboards.terminal.lines import Line, Page, PageOptions, matches
from dashboards.text.formats import Started, clock_in, counted
from fleet.read.run import RunSnapshot


def event_line(run: Started, event: Event, *, more: bool = False) -> Line:
    """An event; with `more`, how many lines of it are left out."""
    rest: Line = ((f"  (+{counted(event.more, 'line')}: press 6)", "dim"),) if more and event.more else ()
    return ((f"{clock_in(run, event.at)}  ", "dim"), (event.text, event.tone), *rest)


def events_page(run: WatchedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
    """All events, the newest at the end."""
    events = list(run.events)
    if options.needle:
        events = [event for event in events if matches(options.needle, event.text)]
    return Page(
        keys=[event.key for event in events],
        draw=lambda index, _: event_line(snapshot, events[index]),
        empty=options.no_rows("No events yet."),
        tail=True,
    )
