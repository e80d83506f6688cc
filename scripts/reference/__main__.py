"""Writes the reference: `make docs`, or `python -m scripts.reference`. `PAGES` says which pages, and from what."""

from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference import commands, configuration, facts, metrics, plan_file
from scripts.reference.page import renewed

ROOT = Path(__file__).parents[2]
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/configuration.md": configuration.made,
    "docs/reference/command-line.md": commands.made,
    "docs/reference/facts.md": facts.made,
    "docs/reference/metrics.md": metrics.made,
    "docs/reference/plan-file.md": plan_file.made,
}


def main() -> None:
    for name, made in PAGES.items():
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        after = renewed(before, made())
        path.write_text(after, encoding="utf-8")
        print(f"docs: {name} {'is as it was' if after == before else 'is written anew'}")


if __name__ == "__main__":
    main()
