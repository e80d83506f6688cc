"""The website of the documentation: every page is in it, complete, and nothing in it comes from elsewhere."""

import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from mkdocs.exceptions import Abort

from scripts.docs_site import ROOT, build_site, links_of, navigation, portable, slug

PARTS = ("h1", "h2", "h3", "li", "table", "tr", "td", "pre", "img")
NO_PART = {"skills/fleet/SKILL.md": {"h2"}}
"""Where Markdown without extensions takes something for a part: front matter for a heading."""
_FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"(https?://[^\"]+)")


@pytest.mark.thorough
def test_every_page_is_in_the_site_with_all_its_parts(tmp_path: Path) -> None:
    pages = build_site(ROOT, tmp_path)
    assert {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")} - set(pages) == set()
    assert [f"{page}: {lost}" for page, text in pages.items() if (lost := parts_lost(tmp_path, page, text))] == []
    assert [url for file in tmp_path.rglob("*.html") for url in _FETCHED.findall(file.read_text())] == []
    found = {entry["location"].partition("#")[0] for entry in search_index(tmp_path)}
    assert found == {built(page) for page in pages}


def test_a_small_repository_becomes_a_site(tmp_path: Path) -> None:
    repository(tmp_path, guide="# Guide\n\n## The first `--step`\n\nText:\n1. one\n2. two\n")
    build_site(tmp_path / "repository", tmp_path / "site")
    html = (tmp_path / "site/docs/guide.html").read_text()
    assert ('id="the-first---step"' in html, html.count("<li>one"), html.count("<li>two")) == (True, 1, 1)
    assert 'href="docs/guide.html#the-first---step"' in (tmp_path / "site/index.html").read_text()


def test_the_menu_has_every_page_once() -> None:
    index = "# Documentation\n\n## Start\n\n[a](a.md), [again](a.md#b)\n"
    pages = ("README.md", "docs/a.md", "docs/decisions/0001-x.md", "AGENTS.md")
    assert navigation({"docs/README.md": index} | dict.fromkeys(pages, "")) == [
        "README.md",
        "docs/README.md",
        {"Start": ["docs/a.md"]},
        {"Decisions": ["docs/decisions/0001-x.md"]},
        {"More": ["AGENTS.md"]},
    ]


@pytest.mark.parametrize(
    "text",
    ["[a page](gone.md)", "[a heading](README.md#gone)", "[absolute](/gone.md)", "![a picture](pictures/gone.png)"],
)
def test_what_is_missing_ends_the_build(text: str, tmp_path: Path) -> None:
    repository(tmp_path, guide=f"# Guide\n\n## The first `--step`\n\n{text}\n")
    with pytest.raises(Abort, match="strict mode"):
        build_site(tmp_path / "repository", tmp_path / "site")


def test_lists_and_notes_are_read_as_on_github() -> None:
    assert portable("Text:\n- a\n  - b\n    more\n- c\n") == "Text:\n\n- a\n    - b\n        more\n- c\n"
    assert portable("1. a\n\n   more\n2. b\n") == "1. a\n\n    more\n\n2. b\n"
    assert portable("- a\n  ```sh\n  $ b\n    - c\n  ```\n") == "- a\n    ```sh\n    $ b\n      - c\n    ```\n"
    assert portable("> [!NOTE]\n> Text.\n") == "!!! note\n\n    Text.\n"
    assert slug("`fleet clean` and you", "-") == "fleet-clean-and-you"


def test_links_are_paths_in_the_repository() -> None:
    text = "[a](b.md#c) ![d](../e.png) [f](https://g.example)\n```\n[not](this.md)\n```\n"
    assert list(links_of("docs/page.md", text)) == ["docs/b.md", "e.png"]


def repository(folder: Path, guide: str) -> None:
    """Write a README, an index and one guide."""
    docs = folder / "repository/docs"
    docs.mkdir(parents=True)
    (folder / "repository/README.md").write_text(
        "# Home\n\n[docs](docs/README.md) [step](docs/guide.md#the-first---step)\n"
    )
    (docs / "README.md").write_text("# Index\n\n## Guides\n\n- [Guide](guide.md)\n")
    (docs / "guide.md").write_text(guide)


def parts_lost(site: Path, page: str, text: str) -> dict[str, tuple[int, int]]:
    """How often each part is in a page and in its built form, if that differs."""
    plain = MarkdownIt("commonmark").enable("table").render(text)
    article = (site / built(page)).read_text().partition("<article")[2].partition("</article>")[0]
    counts = {part: tuple(len(re.findall(rf"<{part}[ >]", html)) for html in (plain, article)) for part in PARTS}
    return {
        part: (before, after)
        for part, (before, after) in counts.items()
        if before != after and part not in NO_PART.get(page, ())
    }


def built(page: str) -> str:
    """The file of a page in the site."""
    return re.sub(r"(^|/)README$", r"\1index", page.removesuffix(".md")) + ".html"


def search_index(site: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads((site / "search/search_index.json").read_text())["docs"]
    return found
