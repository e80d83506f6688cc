"""The merge queue: what waits, what is being tested, the suspects of a red batch, and past batches."""

from collections.abc import Sequence

from dashboards.runs.run_follower import TestedBatch, WatchedRun
from dashboards.runs.status_marks import age
from dashboards.terminal.widgets.lines import BLANK, Line, Page, PageOptions, heading, matches, page_of
from dashboards.text.formats import clock_in, counted, untested
from dashboards.text.safe import safe
from fleet.core.state.facts import BatchTested
from fleet.core.state.landing import Batch
from fleet.core.state.state import RunState
from fleet.core.views.run.run_view import commits_tested

NAMES = 6


def landing_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    landing = state.landing
    rows: list[tuple[str, Line]] = [("", _summary(state)), BLANK]
    rows.append(("", heading(f"TESTING {len(landing.open_batches)}", "merged onto the tip of the branch, all checks")))
    rows += [("", _batch(batch, run.now)) for batch in landing.open_batches] or [("", (("  nothing", "dim"),))]
    if landing.suspects:
        suspects = f"{counted(len(landing.suspects), 'suspect')}: {_names(landing.suspects)}"
        rows += [BLANK, ("", heading("BISECTING"))]
        rows.append(("", ((f"  ✘ a merged tree is red; {suspects}", "bad"),)))
        failed = [check for check in landing.suspicion if not check.passed]
        rows += [("", ((f"      {safe(check.command, limit=120)}", "dim"),)) for check in failed]
    rows += [BLANK, ("", heading(f"QUEUE {len(landing.queue)}", "verified, in landing order"))]
    rows += [(f"s:{id_}", _entry(state, place, id_)) for place, id_ in enumerate(landing.queue, 1)]
    rows += [BLANK, ("", heading("BATCHES", f"{landing.batches} formed, {landing.red} red; latest first"))]
    past = list(reversed(run.batches))
    if options.needle:
        rows += [(_key(tested.result), _tested_batch(state, tested)) for tested in past]
        rows = [(key, line) for key, line in rows if key and matches(options.needle, *(text for text, _ in line))]
        return page_of(rows, empty="No matches.")
    return Page(
        keys=[*(key for key, _ in rows), *(_key(tested.result) for tested in past)],
        draw=lambda index, _: rows[index][1] if index < len(rows) else _tested_batch(state, past[index - len(rows)]),
    )


def _key(result: BatchTested) -> str:
    """The subtask that opens on Enter: the first one sent back, or else the first one landed."""
    ids = [*(out.subtask for out in result.ejected), *(member.subtask for member in result.landed)]
    return f"s:{ids[0]}" if ids else ""


def _summary(state: RunState) -> Line:
    branch = safe(state.result_branch)
    published = f"{branch} is at {safe(state.published)[:7]}" if state.published else f"{branch} does not exist yet"
    behind = "" if state.published == state.tip or not state.commits else ", to be updated"
    return ((f"{state.commits} landed{untested(state.commits, commits_tested(state))}; {published}{behind}", ""),)


def _names(ids: Sequence[str]) -> str:
    names = ", ".join(safe(id_, limit=40) for id_ in ids[:NAMES])
    return names if len(ids) <= NAMES else f"{names} and {len(ids) - NAMES} more"


def _batch(batch: Batch, now: float) -> Line:
    names = [member.subtask for member in batch.members]
    size = "alone" if batch.alone else counted(len(names), "candidate")
    return (
        (f"  ◐ batch {batch.number:<4} ", "check"),
        (f"{age(now - batch.formed_at):>6}  {size}: {_names(names)}", ""),
    )


def _entry(state: RunState, place: int, id_: str) -> Line:
    spec = state.specs.get(id_)
    mark, tone = ("✘", "bad") if id_ in state.landing.suspects else ("▲", "queue")
    return (
        (f"  {mark} {place:>3}  ", tone),
        (f"{safe(id_, limit=40):<24} ", ""),
        (safe(spec.title) if spec else "", "dim"),
    )


def _tested_batch(state: RunState, tested: TestedBatch) -> Line:
    result = tested.result
    members = [member.subtask for member in tested.batch.members] if tested.batch is not None else []
    formed_at = tested.batch.formed_at if tested.batch is not None else result.at
    if result.landed:
        more = f"; {len(result.ejected)} sent back" if result.ejected else ""
        mark, text = ("✔ ", "good"), f"landed {_names([member.subtask for member in result.landed])}{more}"
    elif result.ejected:
        reasons = [
            f"{safe(out.subtask, limit=40)} ({safe(out.failure.summary, limit=60)})" for out in result.ejected[:3]
        ]
        mark, text = ("✘ ", "bad"), f"sent back {', '.join(reasons)}"
    elif result.red:
        mark, text = ("✘ ", "bad"), f"red; suspects: {_names(result.suspects or members)}"
    else:
        mark, text = ("· ", "dim"), "superseded"
    size = f"batch {result.number:<4} {len(members):>3} tested in {age(result.at - formed_at):<6} "
    return ((f"  {clock_in(state, result.at)}  ", "dim"), mark, (size, ""), (text, ""))
