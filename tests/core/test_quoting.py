"""Values in shell commands, judged by a real shell: whatever the value holds, the command keeps its words."""

import subprocess
from pathlib import Path

import pytest

from fleet.core.quoting import fitted

PLACE = "{v}"
HOSTILE = (
    "x; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "x' ; touch pwned ; '",
    'x" ; touch pwned ; "',
    "x\\' ; touch pwned #",
    "x && touch pwned",
    "*",
    "a b",
    "{a,b}",
    "~",
    "$HOME",
    "!!",
    "x)touch pwned",
    "a[$(touch pwned)]",
    "",
    "v2.1.4",
)
SHOWS = "printf '<%s>'"
TEMPLATES = (
    f"{SHOWS} {PLACE}",
    f'{SHOWS} "{PLACE}"',
    f"{SHOWS} '{PLACE}'",
    f"{SHOWS} a{PLACE}b",
    f'{SHOWS} "$(printf %s {PLACE})"',
    f'{SHOWS} "$(printf %s "{PLACE}")"',
    f"true # {PLACE}",
    f"{SHOWS} \\{PLACE}",
    f"{SHOWS} ${PLACE}",
    f"{SHOWS} $'{PLACE}'",
    f"cat <<E\n{PLACE}\nE",
    f"{SHOWS} `printf %s {PLACE}`",
    f"echo $(( {PLACE} + 1 ))",
    f"[[ {PLACE} -eq 1 ]]",
    f"sh -c {PLACE}",
    f"sh -c 'printf %s {PLACE}'",
    f'sh -c "printf %s {PLACE}"',
    f'sh -c \'printf "<%s>" "$1"\' sh {PLACE}',
    f"eval printf %s {PLACE}",
    f"case x in x) {SHOWS} {PLACE};; esac",
    f'"$(case x in x) echo "{PLACE}";; esac)"',
    f"echo y | xargs sh -c {PLACE}",
    f"read {PLACE}",
    f"printf -v {PLACE} x",
    f"test -v {PLACE}",
    f"export {PLACE}",
    f"unset {PLACE}",
    f"awk 'BEGIN {{ print \"{PLACE}\" }}'",
    f"(cd . && {SHOWS} {PLACE})",
    f"{SHOWS} \"a\"'b'{PLACE}",
)


def put(template: str, value: str, *, may_be_option: bool = False) -> str | None:
    start = template.index(PLACE)
    fits = fitted(template, start, value, may_be_option=may_be_option)
    return None if fits is None else template.replace(PLACE, fits)


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_no_value_makes_a_command_do_something_else(shell: str, tmp_path: Path) -> None:
    """Each command that a value fits into is run; what would be `touch pwned` must stay text."""
    lines = [line for template in TEMPLATES for value in HOSTILE if (line := put(template, value)) is not None]
    assert len(lines) > len(TEMPLATES)
    for line in lines:
        subprocess.run([shell, "-c", line], cwd=tmp_path, capture_output=True, check=False, timeout=10)
        assert [path.name for path in tmp_path.iterdir()] == [], line


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    ("template", "around"),
    [
        (f"{SHOWS} {PLACE}", "<%s>"),
        (f"{SHOWS} a{PLACE}b", "<a%sb>"),
        (f'{SHOWS} "$(printf %s {PLACE})"', "<%s>"),
        (f'sh -c \'printf "<%s>" "$1"\' sh {PLACE}', "<%s>"),
        (f"(cd . && {SHOWS} {PLACE})", "<%s>"),
    ],
)
def test_a_word_of_its_own_takes_any_value_and_stays_one_word(
    template: str, around: str, value: str, tmp_path: Path
) -> None:
    line = put(template, value)
    assert line is not None
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=10)
    assert done.stdout == around % value


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_plain_value_fits_wherever_a_dollar_does_not_stand_before_it(template: str) -> None:
    line = put(template, "v2.1.4")
    assert line == (None if "$" + PLACE in template else template.replace(PLACE, "v2.1.4"))


def test_a_value_is_no_option_unless_its_author_listed_it() -> None:
    assert put(f"rm {PLACE}", "-rf") is None
    assert put(f'rm "{PLACE}"', "-rf") is None
    assert put(f"rm {PLACE}", "-rf", may_be_option=True) == "rm -rf"
    assert put(f"tool --level={PLACE}", "-3") == "tool --level=-3"
