"""What options set, by the keys of the configuration and of the journal."""

from fleet.cli.common import KEYS, flags, limits_of
from fleet.config.load import load_config
from fleet.core.facts.facts import LimitsChanged


def test_an_option_that_was_not_given_sets_no_key() -> None:
    assert flags(limits_of(), sandbox=None, setup_network=False, flat=False) == {}


def test_each_option_sets_its_key() -> None:
    given = flags(limits_of(workers=3, budget=2.5), sandbox="none", setup_network=True, gate="")
    assert given == {
        "box.sandbox": "none",
        "worktrees.setup_network": "base",
        "checks.gate": "",
        "run.workers": 3,
        "run.budget_dollars": 2.5,
    }


def test_every_key_that_an_option_sets_is_one_of_the_configuration() -> None:
    origin = load_config(environ={}, user_file=None, repository=None).origin
    limits = limits_of(workers=1, budget=1.0, minutes=1.0, tokens=1, attempts=1)
    assert {*KEYS.values(), *flags(limits)} <= set(origin)


def test_the_limits_of_options_are_those_of_the_journal() -> None:
    limits = limits_of(workers=1, budget=2.0, minutes=3.0, tokens=4, attempts=5)
    assert LimitsChanged(at=0, by="me", **limits).model_dump(include=set(limits)) == limits
