"""The fleet's share of a repository's history, as a person reads it. Models and workers are whatever commits say."""

from typing import Any

from dashboards.figures import count
from dashboards.safe import safe
from dashboards.tables import columns

NAME = 40


def commits_lines(view: dict[str, Any]) -> list[str]:
    commits, total, reverted = view["commits"], view["all_commits"], view["reverted"]
    if not commits:
        return [f"none of {count(total)} commits says that it is the fleet's (the trailer Fleet-Run)"]
    head = ("WEEK", "COMMITS", "REVERTED", "MODEL", "WORKER")
    rows: list[tuple[str, ...]] = [head]
    for week in view["weeks"]:
        rows.append((week["week"], str(week["commits"]), _share(week["reverted"], week["commits"]), "", ""))
        rows += [
            ("", str(by["commits"]), _share(by["reverted"], by["commits"]), _short(by["model"]), _short(by["worker"]))
            for by in week["by"]
        ]
    runs = "1 run" if view["runs"] == 1 else f"{count(view['runs'])} runs"
    said = f"{count(commits)} of {count(total)} commits are the fleet's by their trailers, from {runs}; "
    return [*columns(rows), "", said + f"reverted later: {_share(reverted, commits)}"]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%} ({part} of {whole})" if part else "0"


def _short(name: str) -> str:
    return safe(name, limit=NAME)
