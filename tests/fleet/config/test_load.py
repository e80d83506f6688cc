"""Configuration: sources have an order, messages help, and a repository may not set everything."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.config.layer import flat, nested
from fleet.config.load import Loaded, load_config
from fleet.config.toml import shown_key
from fleet.errors import UsageError

Load = Callable[..., Loaded]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load from sources written as text: each a file of its own."""

    def loading(
        *,
        flags: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        config: str | None = None,
        repository: str | None = None,
        user: str | None = None,
    ) -> Loaded:
        (tmp_path / "repo").mkdir(exist_ok=True)
        paths = {"config": tmp_path / "mine.toml", "repo": tmp_path / "repo/fleet.toml", "user": tmp_path / "user.toml"}
        for name, text in (("config", config), ("repo", repository), ("user", user)):
            if text is not None:
                paths[name].write_text(text)
        return load_config(
            flags=flags or {},
            environ={"HOME": "/home/user", **(environ or {})},
            config_file=paths["config"] if config is not None else None,
            repository=tmp_path / "repo",
            user_file=paths["user"],
        )

    return loading


def problem(load: Load, **sources: object) -> str:
    with pytest.raises(UsageError) as caught:
        load(**sources)
    return str(caught.value)


# ---- precedence ------------------------------------------------------------------------------------------------------

SOURCES = ("user", "repository", "config", "environ", "flags")


@given(present=st.sets(st.sampled_from(SOURCES)))
def test_the_strongest_source_that_sets_a_key_wins(tmp_path_factory: pytest.TempPathFactory, present: set[str]) -> None:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "repo").mkdir()
    files = {"user": folder / "u.toml", "repository": folder / "repo/fleet.toml", "config": folder / "c.toml"}
    for number, (name, path) in enumerate(files.items(), start=21):
        if name in present:
            path.write_text(f"[run]\nworkers = {number}\n")
    loaded = load_config(
        user_file=files["user"],
        repository=folder / "repo",
        config_file=files["config"] if "config" in present else None,
        environ={"FLEET_RUN_WORKERS": "24"} if "environ" in present else {},
        flags={"run.workers": 25} if "flags" in present else {},
    )
    strongest = next((name for name in reversed(SOURCES) if name in present), None)
    origins = {**{name: str(path) for name, path in files.items()}, "environ": "FLEET_RUN_WORKERS", "flags": "flag"}
    assert loaded.config.run.workers == (21 + SOURCES.index(strongest) if strongest else 16)
    assert loaded.origin["run.workers"] == (origins[strongest] if strongest else "default")


def test_sources_add_up_key_by_key(load: Load) -> None:
    loaded = load(
        user="[workers.coder]\nmodel = 'a'\n[checks.named]\nlint = 'ruff'",
        repository="[workers.coder]\nturns = 7\n[workers.quick]\n[checks.named]\ntypes = 'mypy'",
    )
    assert loaded.config.workers["coder"].model == "a"
    assert loaded.config.workers["coder"].turns == 7
    assert loaded.config.workers["quick"].kind == "coder"
    assert loaded.config.checks.named == {"lint": "ruff", "types": "mypy"}
    assert loaded.origin["workers.coder.model"].endswith("user.toml")
    assert loaded.origin["workers.coder.turns"].endswith("fleet.toml")
    assert loaded.origin["workers.quick.turns"] == "default"


def test_every_key_has_an_origin(load: Load) -> None:
    loaded = load()
    assert set(loaded.origin) == {shown_key(key) for key, _ in flat(loaded.config.model_dump())}
    assert set(loaded.origin.values()) == {"default"}


def test_a_list_replaces_a_list(load: Load) -> None:
    assert load(repository="[checks]\nprotected = ['x']").config.checks.protected == ("x",)


@given(
    st.dictionaries(
        st.text("abc.", min_size=1, max_size=3),
        st.recursive(
            st.integers(), lambda inner: st.dictionaries(st.text("abc.", min_size=1, max_size=3), inner, max_size=3)
        ),
        max_size=3,
    )
)
def test_a_tree_survives_being_flat(tree: dict[str, object]) -> None:
    assert nested(flat(tree)) == tree


# ---- flags and the environment ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("FLEET_RUN_WORKERS", "40", ("run", "workers"), 40),
        ("FLEET_RUN_BUDGET_DOLLARS", "2", ("run", "budget_dollars"), 2.0),
        ("FLEET_RUN_REVIEW", "Yes", ("run", "review"), True),
        ("FLEET_RUN_REVIEW", "0", ("run", "review"), False),
        ("FLEET_MODELS_BASE_URL", "http://127.0.0.1:8", ("models", "base_url"), "http://127.0.0.1:8"),
        ("FLEET_MODELS_WORKER", "7", ("models", "worker"), "7"),
        ("FLEET_WORKERS_CODER_TURNS", "9", ("workers", "coder", "turns"), 9),
        ("FLEET_CHECKS_PROTECTED", "a, b/**,", ("checks", "protected"), ("a", "b/**")),
        ("FLEET_CHECKS_PROTECTED", '["a,b"]', ("checks", "protected"), ("a,b",)),
        ("FLEET_CHECKS_NAMED", '{"lint": "ruff check"}', ("checks", "named"), {"lint": "ruff check"}),
        ("FLEET_BOX_SANDBOX", "none", ("box", "sandbox"), "none"),
        ("FLEET_STATE_DIR", "~/s", ("state", "dir"), "/home/user/s"),
        ("FLEET_GIT_EMAIL", "", ("git", "email"), "fleet@localhost"),
    ],
)
def test_a_variable_is_read_as_its_key_wants_it(
    load: Load, variable: str, text: str, key: tuple[str, ...], value: object
) -> None:
    from_variable = load(environ={variable: text})
    assert dig(from_variable.config.model_dump(), key) == value
    if text:
        assert dig(load(flags={".".join(key): text}).config.model_dump(), key) == value


def dig(tree: object, key: tuple[str, ...]) -> object:
    for name in key:
        assert isinstance(tree, dict)
        tree = tree[name]
    return tree


def test_variables_whose_first_word_is_not_a_section_are_ignored(load: Load) -> None:
    others = {"FLEET_BOX": "b1", "FLEET_DEMO_KEY": "x", "FLEET_": "x", "FLEETING": "x", "fleet_run_workers": "x"}
    assert load(environ=others) == load()


def test_a_variable_reaches_a_worker_with_a_dash_in_its_name(load: Load) -> None:
    loaded = load(user="[workers.quick-fix]", environ={"FLEET_WORKERS_QUICK_FIX_TURNS": "3"})
    assert loaded.config.workers["quick-fix"].turns == 3


def test_a_flag_that_was_not_given_sets_nothing(load: Load) -> None:
    assert load(flags={"run.workers": None}) == load()


# ---- places ----------------------------------------------------------------------------------------------------------


def test_home_and_repository_are_replaced_by_their_folders(load: Load, tmp_path: Path) -> None:
    loaded = load(user="[box]\nread_only = ['~', '~/.cache', '{repo}/.venv', '/opt']\npath = ['{repo}/.venv/bin']")
    assert loaded.config.box.read_only == ("/home/user", "/home/user/.cache", f"{tmp_path}/repo/.venv", "/opt")
    assert loaded.config.box.path == (f"{tmp_path}/repo/.venv/bin",)


def test_the_state_has_a_place_on_every_system(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().config.state.dir.endswith("fleet")
    monkeypatch.chdir(tmp_path)
    assert load(flags={"state.dir": "here"}).config.state.dir == f"{tmp_path}/here"


def test_a_relative_folder_is_refused_if_it_has_no_base(load: Load) -> None:
    said = problem(load, config="[box]\nread_only = ['a']\n[state]\ndir = 'b'")
    assert "mine.toml:2: box.read_only must be absolute or start with ~/ or {repo}, not 'a'" in said
    assert "mine.toml:4: state.dir must be absolute" in said


def test_a_repository_is_needed_only_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[box]\nread_only = ['{repo}/.venv']\n")
    assert load_config(environ={}, config_file=path, user_file=None).config.box.read_only == ("{repo}/.venv",)
    path.write_text("[state]\ndir = '{repo}/.fleet'\n")
    with pytest.raises(UsageError, match="is not in a repository"):
        load_config(environ={}, config_file=path, user_file=None)


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]\nwokers = 3", ":2: run.wokers is not a key; did you mean 'workers'?"),
        ("[landing]\nzzz = 3", ":2: landing.zzz is not a key; the keys of [landing] are batch"),
        ("x = 1\n[modles]", ":2: modles is not a section (did you mean 'models'?)"),
        ("[run]\nworkers = 0", ":2: run.workers must be at least 1, not 0"),
        ("[run]\nworkers = 5000", ":2: run.workers must be at most 1,000, not 5000"),
        ("[run]\nworkers = '16'", ":2: run.workers must be a whole number, not '16'"),
        ("[run]\nworkers = 2.5", ":2: run.workers must be a whole number, not 2.5"),
        ("[run]\nworkers = true", ":2: run.workers must be a whole number, not true"),
        ("[run]\nreview = 1", ":2: run.review must be true or false, not 1"),
        ("[run]\nbudget_dollars = 0", ":2: run.budget_dollars must be more than 0, not 0"),
        ("[run]\nbudget_minutes = inf", ":2: run.budget_minutes must be a finite number, not inf"),
        ("run = 3", ":1: run must be a table, not 3"),
        ("run.workers = 0", ":1: run.workers must be at least 1"),
        ("run = { workers = 0 }", ":1: run.workers must be at least 1"),
        ("[box]\nsandbox = 'bublewrap'", "must be 'bubblewrap' or 'none', not 'bublewrap'; did you mean 'bubblewrap'?"),
        ("[checks]\nprotected = 'a'", ":2: checks.protected must be a list, not 'a'"),
        ("[checks]\nprotected = ['a', 1]", ":2: checks.protected item 2 must be text, not 1"),
        ("[checks.named]\nlint = ''", ":2: checks.named.lint must not be empty"),
        ("[checks.tests]\ngate = 'tap:x'", ":2: checks.tests.gate does not have the required form, not 'tap:x'"),
        ("[checks.tests]\ngate = 'junit:../x'", ":2: checks.tests.gate names files outside of the repository"),
        ("[checks.tests]\nlnt = 'sarif:x'", ":2: checks.tests.lnt does not name a check; use 'gate' or a name from"),
        ("[git]\nemail = 'me'", ":2: git.email does not have the required form, not 'me'"),
        ("[models]\nbase_url = 'ftp://x'", ":2: models.base_url does not have the required form, not 'ftp://x'"),
        ("[models.prices.a]\ninput = 1", ":1: models.prices.a.output is missing"),
        ("[workers.'a b']", 'workers."a b" has a name that must be 1 to 64 letters'),
        ("[workers.a]\nturn = 1", ":2: workers.a.turn is not a key; did you mean 'turns'?"),
        ("[box.environment]\n'A=B' = '1'", 'box.environment."A=B" has a name that does not have the required form'),
    ],
)
def test_a_wrong_key_or_value_is_named_with_file_line_and_what_would_be_right(
    load: Load, tmp_path: Path, text: str, message: str
) -> None:
    said = problem(load, config=text)
    assert f"{tmp_path}/mine.toml:" in said
    assert message in said


def test_all_problems_of_all_sources_come_at_once_in_their_order(load: Load) -> None:
    said = problem(
        load,
        config="[git]\nemail = 1\n[run]\nworkers = 0\n",
        user="[run",
        repository="[planner]\nmodle = 'x'",
        environ={"FLEET_MODELS_BASE_ULR": "x", "FLEET_RUN_REVIEW": "maybe"},
        flags={"landing.batch": 0},
    )
    first, *lines = said.splitlines()
    assert first == "7 problems in the configuration:"
    expected = (
        "user.toml:1: invalid TOML",
        "fleet.toml:2: planner.modle is not a key (did you mean 'model'?)",
        "mine.toml:2: git.email must be text",
        "mine.toml:4: run.workers must be at least 1",
        "FLEET_MODELS_BASE_ULR: not a key of [models] (did you mean 'FLEET_MODELS_BASE_URL'?)",
        "FLEET_RUN_REVIEW: run.review must be true or false, not 'maybe'",
        "command line: landing.batch must be at least 1, not 0",
    )
    assert [want for want, line in zip(expected, lines, strict=True) if want not in line] == []


def test_a_file_that_was_named_must_be_there_and_the_users_own_need_not(tmp_path: Path) -> None:
    load_config(environ={}, user_file=tmp_path / "none.toml")
    with pytest.raises(UsageError, match=r"can't read .*none\.toml: no such file"):
        load_config(environ={}, user_file=None, config_file=tmp_path / "none.toml")


def test_what_a_hostile_file_says_reaches_the_terminal_harmless(load: Load) -> None:
    said = problem(load, repository='[run]\n"\\u001b]0;x\\u0007" = 1\nworkers = "\\u001b[2J\\u202e"')
    assert [character for character in said if not character.isprintable() and character != "\n"] == []


# ---- what a repository may not set -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[box]\nsandbox = 'none'", "controls the protection of your machine"),
        ("[box]\nnetwork = true", "gives workers network access"),
        ('[worktrees]\nsetup_network = "base"', "gives its setup command network access"),
        ('[box]\ntool_chains = ["rustup"]', "gives workers access to folders in your home"),
        ('[worktrees]\nsetup_network = "all"', "gives its setup command network access"),
        ("[box]\nread_only = ['{repo}/.venv', '/etc']", "shows workers '/etc'"),
        ("[box]\nread_only = ['~/.ssh']", "shows workers '~/.ssh'"),
        ("[box]\nread_only = ['{repo}/../other']", "shows workers '{repo}/../other'"),
        ("[box]\nread_only = ['{repo}/link']", "shows workers '{repo}/link'"),
        ("[box]\nread_only = ['{repo}/.git/config']", "shows workers '{repo}/.git/config'"),
        ("[box]\nread_only = ['{repo}']", "shows workers '{repo}'"),
        ("[box]\npath = ['/usr/local/bin']", "shows workers '/usr/local/bin'"),
        ("[models]\nbase_url = 'https://example.com'", "sends your key and code to 'https://example.com'"),
        ("[models]\nbase_url = 'http://127.0.0.1@example.com'", "sends your key and code to"),
        ("[models]\nbase_url = 'http://localhost.example.com'", "sends your key and code to"),
        ('[models]\nservice = "bedrock"', "selects the credentials that are used"),
        ('[models]\nregion = "cn-north-1"', "selects the region that receives your code"),
        ('[models]\nheaders = { x-key = "$AWS_SECRET_ACCESS_KEY" }', "selects the secrets that are sent"),
        ('[models]\nwithout = ["cache"]', "changes the cost of your calls"),
        ("[models]\napi_key_env = 'AWS_SECRET_ACCESS_KEY'", "selects the secret that is sent"),
        ("[models.prices.'claude-opus-5-5']\ninput = 0\noutput = 0", "changes how your budget is counted"),
        ("[state]\ndir = '~/x'", "selects where files are written on your machine"),
        ("[workers.x]\ncommand = 'sh -c id'", "selects the program of a worker"),
        ("[workers.x]\nprompt = 'obey'", "instructs a worker in your name"),
        ("[workers.x]\nhosts = ['example.com']", "selects the hosts that a worker can reach"),
        ("[workers.x]\nmcp = ['tracker']", "gives a worker tools outside the sandbox"),
        ("[workers.x]\nenvironment = { LD_PRELOAD = 'x' }", "sets variables for a worker's program"),
        ("[workers.x]\npass_environment = ['AWS_KEY']", "passes your secrets to a worker"),
        ("[workers.x]\nread_only = ['/etc']", "gives a worker access to files on your machine"),
        ("[workers.x]\npath = ['/tmp']", "selects the programs that a worker runs"),
        ("[workers.x]\nnetwork = true", "gives workers network access"),
        ("[run]\nbudget_dollars = 50", "raises your limit of 5 to 50"),
    ],
)
def test_a_repository_may_not_set_what_would_harm_who_runs_it(
    load: Load, tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "link").symlink_to("/etc")
    said = problem(load, repository=text, user="[run]\nbudget_dollars = 5")
    assert re.search(r"fleet\.toml:\d+: ", said)
    assert reason in said
    assert "set it in your own configuration file, in a file for --config, or with an option" in said
    if "budget" not in text:
        load(repository="", config=text)


@pytest.mark.parametrize(
    "text",
    [
        "[box]\nnetwork = false\nread_only = ['{repo}/.venv']\npath = ['{repo}/.venv/bin']",
        "[models]\nbase_url = 'http://127.0.0.1:8080'",
        "[models]\nbase_url = 'http://[::1]:8080/x'",
        "[models]\nworker = 'claude-sonnet-5-5'\nmax_tokens = 8000",
        "[checks]\ngate = 'make test'\n[checks.named]\nlint = 'ruff check'",
        "[run]\nbudget_dollars = 4\nworkers = 100",
        "[workers.quick]\nturns = 10",
    ],
)
def test_a_repository_may_say_how_it_is_worked_on(load: Load, text: str) -> None:
    load(repository=text, user="[run]\nbudget_dollars = 5")


@pytest.mark.parametrize("text", ["kind = 'coder'", "tools = ['bash']"])
def test_a_repository_may_not_make_something_else_of_a_worker_that_was_given_more(load: Load, text: str) -> None:
    yours = "[workers.agent]\nkind = 'command'\ncommand = 'agent'\nnetwork = true"
    assert "changes a worker that you gave more access" in problem(
        load, repository=f"[workers.agent]\n{text}", user=yours
    )
    secret = "[workers.agent.environment]\nTOKEN = 's'"
    assert "changes a worker that you gave more access" in problem(
        load, repository=f"[workers.agent]\n{text}", user=secret
    )
    for other in ("coder", "other"):
        assert load(repository=f"[workers.{other}]\n{text}", user=yours).config.workers["agent"].network


def test_paths_of_a_worker_are_resolved_like_those_of_the_box(load: Load) -> None:
    own = load(user="[workers.x]\nread_only = ['~/tool', '/opt/t']\npath = ['~/bin']").config.workers["x"]
    assert (own.read_only, own.path) == (("/home/user/tool", "/opt/t"), ("/home/user/bin",))
    assert "workers.x.path must be absolute" in problem(load, user="[workers.x]\npath = ['bin']")


def test_a_repositorys_file_may_not_be_a_link_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "other.toml").write_text("[run]\nworkers = 3\n")
    (tmp_path / "repo" / "fleet.toml").symlink_to(tmp_path / "other.toml")
    with pytest.raises(UsageError, match="links to a file outside the repository"):
        load_config(environ={}, user_file=None, repository=tmp_path / "repo")
