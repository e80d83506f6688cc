"""Stories of incidents as lines of text: what failed, what was tried by whose choice, what came of it, how it ended."""

from collections.abc import Iterator, Mapping
from typing import Any

from dashboards.figures import duration, money, rate
from dashboards.safe import safe, safe_block
from dashboards.summary import HOW

BRIEF, WHOLE = 6, 24  # lines of evidence
TEXT = 300
CHOSE = {
    "retry": "the same again",
    "resolve": "done anew on what landed",
    "alternative": "another approach",
    "split": "split into parts",
}


def run_lines(view: Mapping[str, Any]) -> Iterator[str]:
    """What `fleet show RUN` prints: the rates, and every story."""
    simulated = "  (simulated model)" if view["simulated"] else ""
    yield f"{safe(view['run'])}  {view['state']}{simulated}"
    yield f"  goal       {safe(view['goal'], limit=100)}"
    subtasks = ", ".join(f"{count} {name}" for name, count in view["subtasks"].items())
    yield f"  subtasks   {subtasks or 'none planned yet'}"
    yield from rates_lines(view["rates"])
    for story in view["incidents"]:
        yield ""
        yield from story_lines(story, evidence=BRIEF)


def rates_lines(rates: Mapping[str, Any]) -> Iterator[str]:
    """In all, by class and by what was chosen, each with its denominator."""
    open_ = f", {rates['open']} open" if rates["open"] else ""
    yield f"  recovered  {rate(rates['recovered'], rates['closed'])}{open_}"
    yield from _rows("by class", rates["by_class"])
    yield from _rows("by remedy", rates["by_strategy"])


def _rows(title: str, rows: Mapping[str, Any]) -> Iterator[str]:
    for place, (name, row) in enumerate(rows.items()):
        said = rate(row["recovered"], row["closed"]) if row["closed"] else f"none of {row.get('opened', 0)} closed yet"
        yield f"  {title if not place else '':<9}  {HOW.get(name, name):<22} {said}"


def story_lines(story: Mapping[str, Any], *, evidence: int = WHOLE) -> Iterator[str]:
    """One incident from its failure to its end."""
    first = story["failure"]
    yield f"Incident {story['number']}  {safe(story['subtask'])}  {story['class']}: {headline(story)}"
    yield f"  attempt {first['attempt']}   {_who(first)}"
    yield from _came(first, evidence)
    for step in story["remedies"]:
        yield from _step_lines(step, evidence)
    yield f"  end         {safe(story['end'], limit=2 * TEXT)}{_cost(story)}"


def headline(story: Mapping[str, Any]) -> str:
    """How it ended, in a few words."""
    if story["recovered"] is None:
        return "open"
    took = f" after {duration(story['seconds'])}"
    if story["recovered"]:
        return f"recovered without a human{took}: {HOW[story['strategy']]}"
    return f"not recovered without a human{took}"


def _cost(story: Mapping[str, Any]) -> str:
    tries = 1 + sum(len(step["attempts"]) + step["attempts_left_out"] for step in story["remedies"])
    return f"  ({tries} attempt{'s' * (tries != 1)}, {money(story['dollars'])})"


def _step_lines(step: Mapping[str, Any], evidence: int) -> Iterator[str]:
    version = f" (plan version {step['plan_version']})" if step["plan_version"] is not None else ""
    wait = f", after {step['wait_s']:.1f} s" if step["wait_s"] else ""
    why = f": {safe(step['why'], limit=TEXT)}" if step["why"] else ""
    yield f"  chosen      by the {safe(step['by'], limit=40)}{version}: {CHOSE[step['remedy']]}{wait}{why}"
    for told in step["attempts"]:
        of = f"{safe(told['subtask'])} " if step["remedy"] == "split" else ""
        yield f"  attempt {told['attempt']}   {of}{_who(told)}"
        yield from _came(told, evidence)
    if step["attempts_left_out"]:
        yield f"  … and {step['attempts_left_out']} more attempts"


def _who(told: Mapping[str, Any]) -> str:
    model = f" ({safe(told['model'], limit=60)})" if told["model"] else ""
    return f"{safe(told['worker'], limit=40)}{model}, {duration(told['seconds'])}, {money(told['dollars'])}"


def _came(told: Mapping[str, Any], evidence: int) -> Iterator[str]:
    """What came of an attempt, with what it left as evidence."""
    commit = f" as {safe(told['commit'][:7])}" if told["commit"] else ""
    said = f", {told['class']}: {safe(told['summary'], limit=TEXT)}" if told["class"] else ""
    yield f"    {told['outcome']}{commit}{said}"
    if evidence:
        yield from (f"    | {line}" for line in safe_block(told["evidence"], lines=evidence).splitlines())
