"""Colours of lines: what carries which, and that nothing but colours is added."""

import re

import pytest

from dashboards.text.formats import BOLD, CYAN, GREEN, RED, RESET, YELLOW, painted, painted_diff

SGR = re.compile(r"\x1b\[\d+m")


@pytest.mark.parametrize(
    ("line", "colored"),
    [
        ("ok    git          2.39", f"{GREEN}ok{RESET}    git          2.39"),
        ("FAIL  model        no key", f"{RED}FAIL{RESET}  model        no key"),
        ("                   → set a key", f"{CYAN}                   → set a key{RESET}"),
        ("shop-1  landed", f"shop-1  {GREEN}landed{RESET}"),
        ("shop-1  partial  (simulated model)", f"shop-1  {YELLOW}partial{RESET}  (simulated model)"),
        ("a  2026-11-02 10:00  failed  1 of 2", f"a  2026-11-02 10:00  {RED}failed{RESET}  1 of 2"),
        ("  ✘ api  Write it failed", f"  {RED}✘{RESET} api  Write it failed"),
        ("  QUESTION   q1: which?", f"  {YELLOW}QUESTION{RESET}   q1: which?"),
        ("Next steps", f"{BOLD}Next steps{RESET}"),
        ("RUN  STATE  LANDED", f"{BOLD}RUN  STATE  LANDED{RESET}"),
        ("  goal       landed safely and failed never", "  goal       landed safely and failed never"),
        ("", ""),
    ],
)
def test_the_word_that_matters_has_its_color(line: str, colored: str) -> None:
    assert painted(line) == colored


@pytest.mark.parametrize(
    ("line", "color"), [("+new", GREEN), ("-old", RED), ("@@ -1 +1 @@", CYAN), ("+++ b/x", BOLD), (" same", "")]
)
def test_a_patch_is_colored_as_git_does(line: str, color: str) -> None:
    assert painted_diff(line) == (f"{color}{line}{RESET}" if color else line)


def test_nothing_but_colors_is_added() -> None:
    for line in ("  ✔ x  landed", "FAIL", "  → a", "── end", "Totals", "a  failed", "weird \\x1b[ text", "-" * 50):
        for paint in (painted, painted_diff):
            assert SGR.sub("", paint(line)) == line
