"""A diff as a reviewer sees it: lines that can be named, and no line that passes for anything else."""

import pytest

from fleet.core.verdicts.suspicious_changes import Patch, parse_patch

PATCH = """\
diff --git a/app.py b/app.py
index 111..222 100644
--- a/app.py
+++ b/app.py
@@ -1,3 +1,4 @@ def start():
 one
-two
+zwei
+drei
 vier
@@ -20 +21,2 @@
 twenty
+++ b/other.py
\\ No newline at end of file
diff --git a/logo.png b/logo.png
index 333..444 100644
Binary files a/logo.png and b/logo.png differ
diff --git a/gone.py b/gone.py
deleted file mode 100644
index 555..000
--- a/gone.py
+++ /dev/null
@@ -1,2 +0,0 @@
-a
-diff --git a/fake.py b/fake.py
"""


@pytest.fixture
def patch() -> Patch:
    return parse_patch(PATCH)


def test_lines_have_the_numbers_that_an_editor_shows(patch: Patch) -> None:
    assert [(line.sign, line.number, line.text) for line in patch.files["app.py"].lines] == [
        *((" ", 1, "one"), ("-", 2, "two"), ("+", 2, "zwei"), ("+", 3, "drei"), (" ", 4, "vier")),
        *((" ", 21, "twenty"), ("+", 22, "++ b/other.py")),
    ]


def test_no_line_of_a_file_is_taken_for_the_head_of_another(patch: Patch) -> None:
    assert list(patch.files) == ["app.py", "logo.png", "gone.py"]
    assert [line.text for line in patch.files["gone.py"].lines] == ["a", "diff --git a/fake.py b/fake.py"]


@pytest.mark.parametrize(
    ("file", "number", "text"),
    [
        ("app.py", 2, "zwei"),
        ("app.py", 4, "vier"),
        ("gone.py", 1, "a"),
        ("app.py", 5, None),
        ("app.py", 0, None),
        ("app.py", -1, None),
        ("logo.png", 1, None),
        ("other.py", 1, None),
        ("./app.py", 2, None),
    ],
)
def test_only_a_line_that_is_shown_can_be_named(patch: Patch, file: str, number: int, text: str | None) -> None:
    line = patch.line(file, number)
    assert (line.text if line is not None else None) == text


def test_a_reviewer_sees_every_line_with_its_number_and_what_else_is_said(patch: Patch) -> None:
    assert patch.text.splitlines() == [
        *("=== app.py", "     1   one", "     2 - two", "     2 + zwei", "     3 + drei", "     4   vier"),
        *("    ...", "    21   twenty", "    22 + ++ b/other.py"),
        *("=== logo.png", "    (Binary files a/logo.png and b/logo.png differ)"),
        *("=== gone.py", "    (deleted file mode 100644)", "     1 - a", "     2 - diff --git a/fake.py b/fake.py"),
    ]


def test_no_character_of_a_line_ends_it_or_turns_it_around() -> None:
    hostile = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n+x\r=== b\u2028     1 + fine\u202e\x1b[2J\n"
    shown = parse_patch(hostile).text
    assert shown.splitlines() == ["=== a", "     1 + x\ufffd=== b\ufffd     1 + fine\ufffd\ufffd[2J"]


def test_what_was_left_out_of_a_diff_is_known(patch: Patch) -> None:
    cut = parse_patch("diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1,9 @@\n+x\n[... 70 bytes left out ...]\n+y\n")
    assert (patch.is_whole, cut.is_whole) == (True, False)
