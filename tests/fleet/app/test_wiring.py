"""From the configuration to the workers: names of files and variables are resolved, and errors name the key."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from agents.conversation.settings import WorkerSettings
from agents.workers.registry import describe, problems_of
from fleet.app.wiring import Wiring
from fleet.config.load import load_config
from fleet.core.plans.limits import Policy
from fleet.errors import FleetError, UsageError


@pytest.fixture(autouse=True)
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "fleet"
    folder.mkdir()
    return folder


def workers(environ: Mapping[str, str], **flags: object) -> dict[str, WorkerSettings]:
    """The settings of workers with these keys: `name__key`."""
    dotted = {f"workers.{name.replace('__', '.')}": value for name, value in flags.items()}
    return Wiring(load_config(environ={}, user_file=None, flags=dotted).config, environ).workers


def test_what_a_worker_names_is_filled_in(user_folder: Path) -> None:
    (user_folder / "senior.md").write_text("Think twice.\n")
    senior = workers(
        {"TOOL_KEY": "k-1", "OTHER": "x"},
        senior__kind="command",
        senior__prompt="senior.md",
        senior__command="tool --say 'two words' {goal}",
        senior__environment={"COLOUR": "blue"},
        senior__pass_environment=["TOOL_KEY"],
        senior__read_only=["/opt/tool"],
        senior__network=True,
    )["senior"]
    assert senior.prompt == "Think twice.\n"
    assert senior.words == ("tool", "--say", "two words", "{goal}")
    assert senior.extras.environment == {"COLOUR": "blue", "TOOL_KEY": "k-1"}
    assert senior.extras.network is True
    assert senior.secrets == ("k-1",)
    assert "k-1" not in repr(senior)


def test_models_are_a_ladder_and_a_model_is_one_of_a_single_rung() -> None:
    made = workers({}, a__model="m", b__model="m", b__models=["x", "y"], c={})
    assert [made[name].choices for name in "abc"] == [("m",), ("x", "y"), ()]
    assert made["c"].extras.network is None


def test_only_settings_that_differ_from_the_defaults_count_as_given() -> None:
    made = workers({}, a__turns=9, a__tools=["bash"], b={})
    assert made["a"].changed == {"turns", "tools"}
    assert made["b"].changed == made["coder"].changed == frozenset()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"x__prompt": "none.md"}, r"workers\.x\.prompt: can't read .*none\.md: No such file"),
        ({"x__command": "tool 'open"}, r"workers\.x\.command: can't parse .*: No closing quotation"),
        ({"x__pass_environment": ["A_KEY"]}, r"workers\.x\.pass_environment: A_KEY is not set; set it or"),
    ],
)
def test_what_is_missing_is_reported_with_its_key(flags: Mapping[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        workers({}, **flags)


def policy_of(**flags: object) -> Policy:
    dotted = {f"workers.{name.replace('__', '.')}": value for name, value in flags.items()}
    return Wiring(load_config(environ={}, user_file=None, flags=dotted).config, {}).policy


def test_rungs_are_a_ladder_of_models_and_efforts() -> None:
    given = {
        "coder__rungs": ["claude-haiku-5-5", " claude-opus-5-5   low "],
        "coder__first_rung": "claude-opus-5-5 low",
    }
    ladder = policy_of(**given).rungs["coder"]
    assert [(rung.model, rung.effort) for rung in ladder.rungs] == [
        ("claude-haiku-5-5", None),
        ("claude-opus-5-5", "low"),
    ]
    assert ladder.first == 1
    coder = workers({}, **given)["coder"]
    assert coder.choices == ("claude-haiku-5-5", "claude-opus-5-5")
    assert describe({"coder": coder})["coder"].endswith(
        "Its rungs are claude-haiku-5-5, claude-opus-5-5 low. fleet chooses one, and the next after a failure."
    )


def test_without_rungs_there_is_no_ladder() -> None:
    assert policy_of(coder__models=["a", "b"]).rungs == {}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"rungs": ["m hard"]},
            r"workers\.x\.rungs item 1 must be a model, .* efforts: low, medium, .*, not 'm hard'",
        ),
        ({"rungs": ["m"], "models": ["n"]}, r"workers\.x: model and rungs can't be used together"),
        ({"rungs": ["m", "m low", "m"]}, r"workers\.x\.rungs: duplicate rung"),
        ({"rungs": ["m"], "first_rung": "m low"}, r"first_rung: 'm low' is not in rungs; use one of m$"),
        ({"first_rung": "m low"}, r"first_rung: 'm low' is not in rungs"),
    ],
)
def test_rungs_that_make_no_ladder_are_refused(flags: Mapping[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        policy_of(**{f"x__{name}": value for name, value in flags.items()})


def test_a_program_has_no_rungs() -> None:
    made = workers({}, x__kind="command", x__command="tool", x__rungs=["m low"])
    assert list(problems_of("x", made["x"])) == [
        "workers.x: the kind 'command' does not use rungs; remove it",
    ]


def test_variables_that_other_clients_read_are_named_where_they_would_be_expected_to_count() -> None:
    gateway = {"ANTHROPIC_BASE_URL": "https://gateway.example", "ANTHROPIC_API_KEY": "k"}
    ours = Wiring(load_config(environ={}, user_file=None).config, gateway)
    assert ours.ignored_service.startswith("fleet ignores ANTHROPIC_BASE_URL: set --base-url or models.base_url")
    other = load_config(environ={}, user_file=None, flags={"models.base_url": "http://127.0.0.1:1"}).config
    assert Wiring(other, gateway).ignored_service == ""
    with pytest.raises(FleetError, match="fleet ignores ANTHROPIC_AUTH_TOKEN"):
        Wiring(load_config(environ={}, user_file=None).config, {"ANTHROPIC_AUTH_TOKEN": "t"}).require_models()


# ---- services -------------------------------------------------------------------------------------------------------


def wired(environ: Mapping[str, str], **models: object) -> Wiring:
    flags = {f"models.{name}": value for name, value in models.items()}
    return Wiring(load_config(environ={}, user_file=None, flags=flags).config, environ)


def test_a_header_may_come_from_a_variable_that_has_to_be_set() -> None:
    headers = {"x-team": "blue", "x-gateway-key": "$GATEWAY"}
    access = wired({"GATEWAY": "canary"}, headers=headers, auth="x-api-key").access
    assert (dict(access.headers), access.bearer) == ({"x-team": "blue", "x-gateway-key": "canary"}, False)
    with pytest.raises(UsageError, match=r"models\.headers\.x-gateway-key: \$GATEWAY is not set"):
        _ = wired({}, headers=headers).access
    with pytest.raises(UsageError, match="GATEWAY is not a single line"):
        _ = wired({"GATEWAY": "a\r\nx-other: b"}, headers=headers).access


@pytest.mark.parametrize(
    ("service", "environ", "keys", "region"),
    [
        ("bedrock", {"AWS_DEFAULT_REGION": "b", "AWS_REGION": "a", "CLOUD_ML_REGION": "c"}, {}, "a"),
        ("bedrock", {"AWS_REGION": "a"}, {"region": "own"}, "own"),
        ("bedrock", {}, {}, ""),
        ("vertex", {"AWS_REGION": "a", "CLOUD_ML_REGION": "c"}, {}, "c"),
        ("api", {"AWS_REGION": "a", "CLOUD_ML_REGION": "c"}, {}, ""),
    ],
)
def test_the_region_of_a_cloud_is_found_where_its_tools_find_it(
    service: str, environ: dict[str, str], keys: dict[str, str], region: str
) -> None:
    assert wired(environ, service=service, **keys).access.region == region


def test_a_cloud_needs_no_key_of_ours_and_its_address_follows_from_the_region() -> None:
    amazon = wired({}, service="bedrock")
    assert (amazon.has_models, amazon.base_url) == (True, "")
    amazon.require_models()
    assert wired({}, service="bedrock", base_url="https://vpce.example.org").base_url == "https://vpce.example.org"
    with pytest.raises(FleetError, match=r"models\.region is not set"):
        wired({}, service="vertex").require_models()


def test_what_a_service_lacks_is_a_setting_of_all_models_or_of_one() -> None:
    access = wired({}, without=["cache_hour"], model_without={"old": ["effort"]}).access
    assert access.lacking("new") == {"cache_hour"}
    assert access.lacking("old") == {"cache_hour", "effort"}
    with pytest.raises(UsageError, match=r"models\.without"):
        wired({}, without=["flattery"])
