"""Benchmarks: the cost of fleet compared with plain git. docs/internals/benchmarks.md explains each row.

    python -m bench                     every group, up to 100,000 files
    python -m bench --small             every group, up to 10,000 files and with few rounds
    python -m bench startup hundred     these groups only

Rows are printed group by group, and missed targets are listed at the end. A missed target does not change the exit
code, because results depend on the machine's load. All files are generated in memory and removed at the end.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio

from bench.budget import show_budget
from bench.caching import caching_figures
from bench.conversations import conversation_figures
from bench.hundred import hundred_figures
from bench.landing import landing_figures
from bench.landing_load import load_figures
from bench.landing_policy import policy_figures
from bench.leases import box_figures, lease_figures
from bench.long_run import resume_figures, scrape_figures
from bench.many_attempts import many_attempts_figures
from bench.nodes import node_figures
from bench.planner_calls import planner_figures
from bench.rules import rule_break_figures
from bench.side_by_side import FULL, SMALL, Extent
from bench.startup import startup_figures
from bench.storm import storm_figures
from bench.subtask import subtask_figures
from bench.terminal import screen_figures
from bench.throughput import throughput_figures
from bench.web import web_figures
from bench.wide import wide_figures
from scripts.frame import MET, Figure, Table, add_names, command_line, exit_with, progress

Group = Callable[[Extent], Awaitable[list[Figure]]]


async def all_node_figures(extent: Extent) -> list[Figure]:
    """One attempt on a real node, then a thousand at once on simulated ones."""
    return [*await node_figures(extent), *await many_attempts_figures(extent)]


GROUPS: dict[str, Group] = {
    "startup": startup_figures,
    "policy": policy_figures,
    "load": load_figures,
    "scrape": scrape_figures,
    "resume": resume_figures,
    "caching": caching_figures,
    "planner": planner_figures,
    "box": box_figures,
    "leases": lease_figures,
    "subtask": subtask_figures,
    "landing": landing_figures,
    "hundred": hundred_figures,
    "nodes": all_node_figures,
    "screen": screen_figures,
    "web": web_figures,
    "wide": wide_figures,
    "throughput": throughput_figures,
    "storm": storm_figures,
    "conversations": conversation_figures,
    "rules": rule_break_figures,
}


async def measure(names: list[str], extent: Extent) -> None:
    table = Table("a figure is fleet's cost divided by plain git's unless its row says otherwise: wall, processor")
    for name in names:
        progress(name)
        table.add(*await GROUPS[name](extent))
    table.finish()


def main() -> int:
    parser = command_line("bench", __doc__)
    add_names(parser, "GROUP", GROUPS)
    parser.add_argument("--small", action="store_true", help="1,000 and 10,000 files, few rounds")
    parser.add_argument(
        "--profile", action="store_true", help="hundred: the budget of a subtask, by step, and the floor"
    )
    parser.add_argument("--folder", type=Path, help="generate files in this folder instead of in memory")
    args = parser.parse_args()
    extent = replace(SMALL if args.small else FULL, folder=args.folder)
    if args.profile:
        show_budget(extent)
        return MET
    anyio.run(measure, args.names or list(GROUPS), extent)
    return MET


if __name__ == "__main__":
    exit_with(main)
