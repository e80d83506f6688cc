"""Keys set in the user's own file: nothing else in it changes."""

from pathlib import Path

import pytest

from fleet.config.load import set_in_file, with_key
from fleet.config.toml import parse_toml, read_toml
from fleet.errors import UsageError

KEY = ("worktrees", "setup_network")
TEXTS = {
    "empty": "",
    "another table": "# mine\n[run]\nworkers = 4 # few\n",
    "the table": "[worktrees] # here\nsetup_timeout_s = 5.0\n\n[run]\nworkers = 4\n",
    "the key": '[worktrees]\nsetup_network = "none" # no\nmax_gb = 1.0\n',
    "dotted": "worktrees.max_gb = 1.0\n[run]\nworkers = 4\n",
    "no line end": "[run]\nworkers = 4",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_key_is_set_and_everything_else_stays(name: str) -> None:
    before = TEXTS[name]
    after = with_key(before, KEY, "base", name="config.toml")
    data = parse_toml(after, name="x")
    expected = parse_toml(before, name="x")
    expected["worktrees"] = {**expected.get("worktrees", {}), "setup_network": "base"}
    assert data == expected
    assert [line for line in before.splitlines() if "#" in line and "setup_network" not in line] == [
        line for line in after.splitlines() if "#" in line
    ]


def test_setting_a_key_twice_changes_nothing_more() -> None:
    once = with_key("", ("box", "tool_chains"), ["rustup"], name="x")
    assert with_key(once, ("box", "tool_chains"), ["rustup"], name="x") == once
    assert parse_toml(with_key("[box]\n", ("box", "tool_chains"), ["a", "b"], name="x"), name="x")["box"] == {
        "tool_chains": ["a", "b"]
    }


def test_a_form_that_is_not_understood_is_left_to_the_person() -> None:
    with pytest.raises(UsageError, match=r"can't set worktrees\.setup_network automatically"):
        with_key("worktrees = { max_gb = 1.0 }\n", KEY, "base", name="config.toml")


def test_a_new_file_is_the_users_alone_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "fleet" / "config.toml"
    set_in_file(path, {KEY: "base"})
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    set_in_file(path, {("box", "tool_chains"): ["nvm"]})
    assert path.stat().st_mode & 0o777 == 0o640
    assert read_toml(path) == {"worktrees": {"setup_network": "base"}, "box": {"tool_chains": ["nvm"]}}
    assert [each.name for each in path.parent.iterdir()] == ["config.toml"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles" / "fleet.toml").write_text("", encoding="utf-8")
    link = tmp_path / "config.toml"
    link.symlink_to(tmp_path / "dotfiles" / "fleet.toml")
    set_in_file(link, {KEY: "base"})
    assert link.is_symlink()
    assert read_toml(link) == {"worktrees": {"setup_network": "base"}}
