"""The findings in reports of the form SARIF 2.1, which most analysers can write. Their content is hostile.

A finding is known by its rule, its file and what it says, not by its line: lines move. What the code itself suppresses
is a finding, too, because a worker could write the suppression.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from fleet.core.base.json_text import parse_json
from fleet.core.state.facts import RanTests

MOST, LONGEST = 100_000, 300
"""Findings that are compared, and characters of each."""


def sarif_findings(reports: Sequence[bytes]) -> RanTests | None:
    """The findings in all reports; None without a report, where one can't be read, or where there are too many."""
    seen: Counter[str] = Counter()
    try:
        for report in reports:
            for finding in _findings(parse_json(report)):
                seen[finding] += 1
                if seen.total() > MOST:
                    return None
    except (ValueError, TypeError, AttributeError, KeyError, IndexError):
        return None
    named = (f"{finding} ({number})" if number else finding for finding, n in seen.items() for number in range(n))
    return RanTests(findings=frozenset(named)) if reports else None


def _findings(document: Any) -> Iterator[str]:
    for run in document["runs"]:
        for result in run.get("results") or ():
            if result.get("kind", "fail") == "fail" and result.get("baselineState") != "absent":
                yield " ".join(f"{_file(result)}: {_rule(result)}: {_text(result)}".split())[:LONGEST]


def _file(result: Any) -> str:
    locations: Any = result.get("locations")
    place = locations[0]["physicalLocation"]["artifactLocation"] if locations else {}
    return str(place.get("uri", ""))


def _rule(result: Any) -> str:
    return str(result.get("ruleId") or result.get("rule", {}).get("id", ""))


def _text(result: Any) -> str:
    message = result["message"]
    return str(message.get("text") or message.get("id", ""))
