"""Why a set-up command or a gate failed, as a person needs it: how it ended, the lines that matter, what to do next."""

from collections.abc import Iterable, Iterator

from dashboards.text.formats import duration
from dashboards.text.safe import safe
from fleet.core.base.output import advice
from fleet.core.state.facts import CheckRun
from fleet.core.state.failures import how
from fleet.core.views.run.base_view import BaseView

LINE = 200


def check_lines(check: CheckRun, *, log: str = "", note: str = "") -> Iterator[str]:
    """A command with its result; if it failed, with the lines of its output that matter."""
    after = f"{how(check)} after {duration(check.seconds)}" if not check.passed else duration(check.seconds)
    tests = f", {check.tests} tests passed" if check.tests is not None else ""
    yield f"{'ok    ' if check.passed else 'FAILED'}  {safe(check.command, limit=LINE)}  ({after}{tests}{note})"
    if not check.passed:
        yield from cause_lines(check.causes)
        if log:
            yield f"        whole output: {safe(log)}"


def cause_lines(causes: Iterable[str]) -> Iterator[str]:
    """The lines that matter, under the command that printed them."""
    yield from (f"        | {safe(line, limit=LINE)}" for line in causes)


def advice_lines(causes: tuple[str, ...]) -> Iterator[str]:
    yield from (f"  → {safe(line, limit=500)}" for line in advice(causes))


def base_lines(view: BaseView, *, logs: str = "") -> Iterator[str]:
    """Set-up and gate on the base of a run, and what to do about a failure. `logs` is the folder above the logs."""
    if view.setup is not None:
        note = ", with the network" if view.setup.network else ""
        yield from check_lines(view.setup.check, log=_log(view.setup.check, logs), note=note)
    for check in view.gate:
        yield from check_lines(check, log=_log(check, logs))
    if view.failure is not None and (view.setup is None or view.setup.check.passed):
        yield f"FAILED  {safe(view.failure.summary, limit=LINE)}"
        yield from cause_lines(view.causes)
    yield from advice_lines(view.causes)


def refusal_commands(view: BaseView, run: str) -> list[tuple[str, str]]:
    """What to type where a run was refused, each with its purpose."""
    base = view.setup is not None or view.gate or view.failure is not None
    commands = [("fleet try", "set-up and gate again, without a run")] if base else []
    for name, has_log in (("setup", view.setup is not None), ("gate", bool(view.gate))):
        if has_log:
            commands.append((f"fleet logs {name} --run {run}", "the whole output"))
    commands.append((f"fleet show {run}", "this again; the run is kept"))
    commands.append((f"fleet resume {run}", "start it again with the configuration as it is at that time"))
    return commands


def _log(check: CheckRun, logs: str) -> str:
    return f"{logs}{check.log}" if check.log else ""
