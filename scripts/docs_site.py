"""The documentation as a website: `make docs-site`, or `python -B -m scripts.docs_site [--output FOLDER]`.

Builds README and every page that it leads to into a static folder with search, which fetches nothing from elsewhere. A
missing page, link or heading ends the build with exit code 1. Search needs a web server, such as
`python -m http.server -d site`.
"""

import argparse
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mkdocs.commands.build import build
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
STYLE = ".md-grid{max-width:80rem}"  # code and tables of these pages are up to 130 columns wide
HOME, INDEX, DECISIONS = "README.md", "docs/README.md", "docs/decisions/"
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)")
_FENCE = re.compile(r"^ *(`{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"( *)([-*+]|\d+\.)( +)(?=\S)")
_NOTE = re.compile(r"^> \[!(\w+)\]\n((?:>.*\n)+)", re.MULTILINE)
_EVERY_PROBLEM = {
    "nav": {"omitted_files": "warn", "not_found": "warn", "absolute_links": "warn"},
    "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.docs_site", description=__doc__)
    parser.add_argument("--output", type=Path, default=SITE, metavar="FOLDER", help="the folder to write")
    output = parser.parse_args(arguments).output.resolve()
    logging.basicConfig(level=logging.WARNING, format="docs-site: %(message)s")
    try:
        pages = build_site(ROOT, output)
    except Abort as problem:
        print(f"docs-site: {problem}", file=sys.stderr)
        return 1
    print(f"docs-site: {len(pages)} pages in {os.path.relpath(output)}; open {os.path.relpath(output / 'index.html')}")
    return 0


def build_site(root: Path, output: Path) -> Mapping[str, str]:
    """Build the pages of a repository, and return the text of each by path. Raise `Abort` if one lacks something."""
    with TemporaryDirectory(prefix="fleet-docs-") as scratch:
        pages = stage_pages(root, Path(scratch))
        Path(scratch, "site.css").write_text(STYLE, encoding="utf-8")
        build(site_config(navigation(pages), Path(scratch), output))
    return pages


def site_config(nav: Sequence[Any], pages: Path, output: Path) -> MkDocsConfig:
    """Return the settings of MkDocs, checked."""
    config = MkDocsConfig()
    config.load_dict(
        {
            "site_name": "fleet",
            "docs_dir": str(pages),
            "site_dir": str(output),
            "nav": list(nav),
            "strict": True,
            "use_directory_urls": False,  # links also work without a web server
            "validation": _EVERY_PROBLEM,
            "theme": {
                "name": "material",
                "font": False,  # no remote fonts
                "features": ["navigation.indexes", "navigation.top", "search.highlight", "content.code.copy"],
                "palette": [
                    {"media": "(prefers-color-scheme: light)", "scheme": "default", "primary": "indigo"},
                    {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "primary": "indigo"},
                ],
            },
            "plugins": ["search"],
            "extra_css": ["site.css"],
            "markdown_extensions": [
                "admonition",
                "tables",
                "sane_lists",
                {"toc": {"permalink": True, "slugify": slug}},
                "pymdownx.superfences",
                "pymdownx.highlight",
            ],
        }
    )
    errors, warnings = config.validate()
    for name, problem in (*errors, *warnings):
        raise ValueError(f"{name}: {problem}")
    return config


# ---- pages ----------------------------------------------------------------------------------------------------------


def stage_pages(root: Path, folder: Path) -> Mapping[str, str]:
    """Copy README, the pages that it leads to and the files that they show; return the text of each page by path."""
    pages: dict[str, str] = {}
    pending = [HOME]
    while pending:
        path = pending.pop()
        target = folder / path
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if not path.endswith(".md"):
            shutil.copy(root / path, target)
            continue
        pages[path] = (root / path).read_text(encoding="utf-8")
        target.write_text(portable(without_folders(root / path, pages[path])), encoding="utf-8")
        pending += (linked for linked in links_of(path, pages[path]) if (root / linked).is_file())
    return pages


def links_of(path: str, text: str) -> Iterator[str]:
    """Yield the files of the repository that a page links to or shows."""
    for link in _LINK.findall(_FENCE.sub("", text)):
        if "://" not in link:
            yield os.path.normpath(os.path.join(os.path.dirname(path), link))  # noqa: PTH118, PTH120 # a path in git


def without_folders(page: Path, text: str) -> str:
    """Return a page whose links to folders are text: a site has no page for them."""
    return re.sub(
        r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+)\)",
        lambda link: link[1] if (page.parent / link[2]).is_dir() else link[0],
        text,
    )


def navigation(pages: Mapping[str, str]) -> list[Any]:
    """Return the menu: README, the index page, its sections in order, then the decisions and the other pages."""
    placed = {HOME, INDEX}
    menu: list[Any] = [HOME, INDEX]
    for section in pages[INDEX].split("\n## ")[1:]:
        found = [path for path in dict.fromkeys(links_of(INDEX, section)) if path in pages and path not in placed]
        placed.update(found)
        if found:
            menu.append({section.partition("\n")[0]: found})
    rest = sorted(set(pages) - placed)
    menu.append({"Decisions": [path for path in rest if path.startswith(DECISIONS)]})
    menu.append({"More": [path for path in rest if not path.startswith(DECISIONS)]})
    return menu


# ---- Markdown as on GitHub ------------------------------------------------------------------------------------------


def slug(heading: str, separator: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", separator)


def portable(text: str) -> str:
    """Return a page that Python-Markdown reads as GitHub does: lists without a blank line before them, notes."""
    text = _NOTE.sub(
        lambda note: f"!!! {note[1].lower()}\n\n{re.sub(r'^> ?', '    ', note[2], flags=re.MULTILINE)}", text
    )
    return "\n".join(_lists(text.split("\n")))


def _lists(lines: Sequence[str]) -> Iterator[str]:
    """Indent what belongs to a list item by four columns per level, and separate lists from paragraphs."""
    widths: list[int] = []  # of the enclosing items: the columns at which their text starts
    before, fence, loose = "", "", False
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        item = None if fence else _ITEM.match(line)
        if item and before and (loose or not widths):
            yield ""
        if line.strip() and not fence and (item or not before):
            while widths and indent < widths[-1]:
                widths.pop()
        inner = line[min(indent, widths[-1]) :] if widths else line
        yield " " * 4 * len(widths) + inner if line.strip() else ""
        if item:
            widths.append(len(item[0]))
        if mark := re.match(r" *(`{3,})", line):
            fence = "" if fence == mark[1] else fence or mark[1]
        before = line.strip()
        loose = not item and (loose or not before)  # a blank line since the marker: more than one paragraph


if __name__ == "__main__":
    sys.exit(main())
