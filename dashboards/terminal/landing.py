"""The way to the integration branch: what waits, what is tested side by side, who is suspected, what became of it."""

from dashboards.figures import untested
from dashboards.terminal.lines import Line, Page, Wish, heading, matches, shown
from dashboards.terminal.watched import Tested, Watched
from dashboards.terminal.words import age, clock_in
from fleet.core.state import Batch, RunState
from fleet.core.views import commits_tested

NAMES = 6


def landing_page(watched: Watched, state: RunState, now: float, wish: Wish) -> Page:
    landing = state.landing
    lines: list[tuple[str, Line]] = [("", _summary(state))]
    lines.append(("", ()))
    lines.append(
        ("", heading(f"TESTED NOW {len(landing.probes)}", "merged with the tip, all checks on the merged tree"))
    )
    lines += [("", _probe(probe, now)) for probe in landing.probes] or [("", (("  nothing", "dim"),))]
    if landing.suspects:
        names = ", ".join(shown(id_, 40) for id_ in landing.suspects[:NAMES])
        word = "it is" if len(landing.suspects) == 1 else f"one of {len(landing.suspects)} is guilty:"
        lines += [("", ()), ("", heading("BISECTING", f"{landing.reds} red in a row"))]
        lines.append(("", ((f"  ✘ a merged tree is red; {word} {names}", "bad"),)))
        lines += [
            ("", ((f"      {shown(check.command, 120)}", "dim"),)) for check in landing.suspicion if not check.passed
        ]
    lines += [("", ()), ("", heading(f"QUEUE {len(landing.queue)}", "verified, waiting to land, the first one first"))]
    lines += [(f"s:{id_}", _queued(state, place, id_)) for place, id_ in enumerate(landing.queue, 1)]
    lines += [("", ()), ("", heading("BATCHES", f"{landing.batches} formed, {landing.red} red; the latest first"))]
    lines += [(_key(tested), _tested(state, tested)) for tested in reversed(watched.batches)]
    if wish.needle:
        lines = [(key, line) for key, line in lines if key and matches(wish.needle, *(text for text, _ in line))]
    return Page(keys=[key for key, _ in lines], draw=lambda index, _: lines[index][1], empty="nothing matches")


def _key(tested: Tested) -> str:
    named = tested.ejected[0][0] if tested.ejected else tested.landed[0] if tested.landed else ""
    return f"s:{named}" if named else ""


def _summary(state: RunState) -> Line:
    where = shown(state.result_branch)
    shows = f"{where} is at {shown(state.published)[:7]}" if state.published else f"{where} is not there yet"
    behind = "" if state.published == state.tip or not state.commits else ", and will follow"
    more = untested(state.commits, commits_tested(state))
    return ((f"{state.commits} landed{more}; {shows}{behind}", ""),)


def _some(names: tuple[str, ...]) -> str:
    listed = ", ".join(shown(name, 40) for name in names[:NAMES])
    return listed if len(names) <= NAMES else f"{listed} and {len(names) - NAMES} more"


def _probe(probe: Batch, now: float) -> Line:
    names = tuple(member.subtask for member in probe.members)
    how = "alone" if probe.alone else f"the first {len(names)}"
    return (
        (f"  ◐ batch {probe.number:<4} ", "accent"),
        (f"{age(now - probe.formed_at):>6}  ", ""),
        (f"{how}: {_some(names)}", ""),
    )


def _queued(state: RunState, place: int, id_: str) -> Line:
    spec = state.specs.get(id_)
    mark, tone = ("✘", "bad") if id_ in state.landing.suspects else ("▲", "good")
    return (
        (f"  {mark} {place:>3}  ", tone),
        (f"{shown(id_, 40):<24} ", ""),
        (shown(spec.title if spec else ""), "dim"),
    )


def _tested(state: RunState, tested: Tested) -> Line:
    begin = f"  {clock_in(state, tested.at)}  "
    size = f"batch {tested.number:<4} {len(tested.members):>3} tested in {age(tested.at - tested.formed_at):<6} "
    if tested.landed:
        more = f"; {len(tested.ejected)} sent back" if tested.ejected else ""
        return ((begin, "dim"), ("✔ ", "good"), (size, ""), (f"landed {_some(tested.landed)}{more}", ""))
    if tested.ejected:
        sent = ", ".join(f"{shown(id_, 40)} ({shown(why, 60)})" for id_, why in tested.ejected[:3])
        return ((begin, "dim"), ("✘ ", "bad"), (size, ""), (f"sent back {sent}", ""))
    if tested.red:
        suspects = tested.suspects or tested.members
        return ((begin, "dim"), ("✘ ", "bad"), (size, ""), (f"red: one of {_some(suspects)}", ""))
    return ((begin, "dim"), ("· ", "dim"), (size, "dim"), ("overtaken", "dim"))
