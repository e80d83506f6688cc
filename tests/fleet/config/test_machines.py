"""Which workers stay on the manager's machine, and why."""

from fleet.config.load import default_config
from fleet.config.schema import machines_of, stays_here


def test_a_worker_with_something_that_only_this_machine_has_stays() -> None:
    config = default_config()
    coder = config.workers["coder"]
    given: dict[str, dict[str, object]] = {
        "plain": {},
        "fetches": {"hosts": ("a.example",)},
        "asks": {"mcp": ("tracker", "docs")},
    }
    given["keyed"] = {"pass_environment": ("KEY",)}
    workers = {name: coder.model_copy(update=more) for name, more in given.items()}
    config = config.model_copy(update={"workers": workers})
    assert stays_here(config) == {
        "fetches": "it fetches from hosts through this machine",
        "asks": "this machine calls the tools of tracker, docs",
        "keyed": "it gets KEY from this machine's environment",
    }
    assert machines_of(config, {}).stays == ("fetches", "asks", "keyed")
