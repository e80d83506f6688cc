"""The shape of the configuration, the complete file and the policy say the same."""

import re

from annotated_types import BaseMetadata
from pydantic import BaseModel

from fleet.config.layer import WHOLE, flat
from fleet.config.load import default_config, defaults_file, load_config
from fleet.config.schema import LandingSection, LimitsSection, Run, as_policy
from fleet.config.toml import parse_toml, shown_key
from fleet.core.plans.limits import Policy
from fleet.ports.settings import ChecksSection, PlannerSection, Section


def uncommented(text: str) -> str:
    """The file with the keys that have no default, as the lines that show them say."""
    return re.sub(r"^# (?=\[?[A-Za-z0-9_.\"-]+(?:\]$| = ))", "", text, flags=re.MULTILINE)


def test_only_keys_without_a_default_may_be_left_out_of_the_complete_file() -> None:
    stated = {
        f"{shape.__name__}.{name}"
        for shape in Section.__subclasses__()
        for name, field in shape.model_fields.items()
        if not field.is_required() and field.default not in (None, {})
    }
    assert stated == set()


def test_the_complete_file_names_every_key_and_no_other() -> None:
    stated = parse_toml(uncommented(defaults_file().read_text()), name="config.toml")
    stated = {name: table for name, table in stated.items() if name in WHOLE.model_fields}  # of features that are there
    WHOLE.model_validate(stated)  # refuses every other key
    named = {key for key, _ in flat(stated)}
    tables = {key[:length] for key in named for length in range(1, len(key))}
    missing = [
        shown_key(key)
        for key, value in flat(default_config().model_dump())
        if key not in named and not (value == {} and key in tables)
    ]
    assert missing == []


def test_every_key_of_the_complete_file_has_a_comment_above_it() -> None:
    lines = defaults_file().read_text().splitlines()
    keys = [number for number, line in enumerate(lines) if re.match(r"(# )?[a-z_]+ = ", line)]
    followers = ("backoff_cap_s", "# input", "# output", "# cache_", "# lint", "# PYTEST")
    bare = [lines[n] for n in keys if not lines[n - 1].startswith("# ") and not lines[n].startswith(followers)]
    assert bare == []


BUDGETS = ("budget_dollars", "budget_minutes", "budget_tokens", "budget_attempts")


def test_the_policy_and_the_sections_agree_in_defaults_and_bounds() -> None:
    assert as_policy(default_config()) == Policy()
    pairs: list[tuple[str, type[BaseModel], str]] = [
        *((name, Run, name) for name in ("workers", *BUDGETS, "budget_soft", "flat", "review")),
        *((f"subtask_{unit}", LimitsSection, f"subtask_{unit}") for unit in ("dollars", "minutes", "tokens")),
        *((f"max_{name}", LimitsSection, name) for name in ("attempts", "retries", "depth")),
        *((name, LimitsSection, name) for name in ("backoff_first_s", "backoff_cap_s")),
        *((name, ChecksSection, name) for name in ("allow_red_base", "reruns")),
        *((name, LandingSection, name) for name in ("batch", "slots", "every_commit", "every_commit_within_s")),
        *((name, PlannerSection, name) for name in ("max_subtasks", "max_areas", "area_depth")),
        ("settle_s", PlannerSection, "settle_s"),
        *((f"max_planner_{name}", PlannerSection, f"max_{name}") for name in ("calls", "failures")),
    ]
    apart = {
        "answer_wait_s",
        "service_wait_s",
        "service_lost_s",
        "drain_s",
        "check_base",
        "ladders",
        "rungs",
        "reviewing",
        "in_order",
        "machines",
        "programs",
        "by_turns",
        "publishes",
        "rules",
    }
    assert {pair[0] for pair in pairs} | apart == set(Policy.model_fields)
    for name, section, key in pairs:
        assert bounds(Policy, name) == bounds(section, key), name


def bounds(model: type[BaseModel], name: str) -> list[BaseMetadata]:
    return [item for item in model.model_fields[name].metadata if isinstance(item, BaseMetadata)]


def test_every_setting_reaches_the_policy() -> None:
    sections: dict[str, dict[str, object]] = {
        "run": {"workers": 3, "budget_soft": 0.5, "flat": True, "review": True, **dict.fromkeys(BUDGETS, 9)},
        "review": {"max_risk": "low"},
        "planner": {
            "max_subtasks": 4,
            "max_areas": 3,
            "area_depth": 2,
            "max_calls": 5,
            "max_failures": 6,
            "settle_s": 7.0,
        },
        "limits": {
            "attempts": 8,
            "retries": 9,
            "depth": 2,
            "backoff_first_s": 0.5,
            "backoff_cap_s": 11.0,
            "subtask_dollars": 0.5,
            "subtask_minutes": 5,
            "subtask_tokens": 5000,
            "answer_wait_minutes": 2,
            "drain_minutes": 3,
        },
        "landing": {"batch": 12, "slots": 3, "every_commit": True, "every_commit_within_s": 5},
        "models": {"ask_after_minutes": 1, "give_up_after_minutes": 3},
        "checks": {"gate": "make test", "allow_red_base": True, "reruns": 3},
        "workers": {"coder": {"models": ["a", "b"]}, "quick": {"models": ["a"]}},
    }
    flags = {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}
    policy = as_policy(load_config(environ={}, user_file=None, flags=flags).config)
    assert (policy.answer_wait_s, policy.service_wait_s, policy.service_lost_s) == (120, 60, 180)
    assert policy.drain_s == 180
    assert policy.ladders == {"coder": ("a", "b")}
    unchanged = [name for name in Policy.model_fields if getattr(policy, name) == getattr(Policy(), name)]
    assert set(unchanged) == {
        "reviewing",
        "in_order",
        "machines",
        "programs",
        "by_turns",
        "publishes",
        "rungs",
    }  # what a run is started for decides about these
