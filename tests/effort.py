"""How many examples a property is tried with: all of them in `make test-all`, a quarter in `make test`."""

from hypothesis import HealthCheck, settings

ALL = 100
QUICK = ALL // 4
LEAST = 10


def load_profile(*, thorough: bool) -> None:
    """A busy machine is no defect, so no example has a limit of time; fixtures are shared by examples on purpose."""
    settings.register_profile(
        "fleet",
        max_examples=ALL if thorough else QUICK,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("fleet")


def examples(number: int) -> settings:
    """Settings for a property that is tried more or less often than others."""
    tried = number * settings().max_examples // ALL
    return settings(max_examples=max(min(number, LEAST), tried))
