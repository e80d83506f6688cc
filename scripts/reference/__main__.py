"""Writes the reference: `make docs`, or `python -m scripts.reference`. `PAGES` lists the pages and their sources."""

from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference import commands, configuration, facts, json_views, metrics, plan_file
from scripts.reference.page import replace_marked

ROOT = Path(__file__).parents[2]
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/configuration.md": configuration.content,
    "docs/reference/command-line.md": commands.content,
    "docs/reference/facts.md": facts.content,
    "docs/reference/json.md": json_views.content,
    "docs/reference/metrics.md": metrics.content,
    "docs/reference/plan-file.md": plan_file.content,
}


def main() -> None:
    for name, content in PAGES.items():
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        after = replace_marked(before, content())
        path.write_text(after, encoding="utf-8")
        print(f"docs: {name} {'is unchanged' if after == before else 'has been written'}")


if __name__ == "__main__":
    main()
