"""Lists the chaos programs."""

import ast
from pathlib import Path

from scripts.frame import MET, exit_with, say

PROGRAMS = (
    "kill",
    "damage",
    "boxes",
    "mutants",
    "rates",
    "cheats",
    "canaries",
    "errors",
    "wide",
    "notifications",
    "nodes",
    "node_levels",
    "node_kills",
    "ray_cluster",
    "container",
    "over_ssh",
    "forge",
    "claude_mcp",
    "claude_skill",
    "otlp_collector",
)


def main() -> int:
    for name in PROGRAMS:
        source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
        summary, _, _ = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
        say(f"python -m chaos.{name:<13} {summary}")
    say("", "Run one with --help for details. docs/internals/reliability.md lists the expected results.")
    return MET


if __name__ == "__main__":
    exit_with(main)
