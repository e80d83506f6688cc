"""Mistakes in a command as errors of ours: one line that says what is wrong, and a hint."""

from typing import Any

from typer.exceptions import TyperException

from dashboards.text.safe import safe
from fleet.cli.verb_table import VERBS
from fleet.core.base.nearest import did_you_mean
from fleet.errors import UsageError

KEPT = "a run keeps the {} that it was started with; start another run to change it"
NOT_FOR_RESUME = {
    **{option: KEPT.format(option) for option in ("--base", "--name", "--plan", "--set", "--flat", "--review")},
    "--plan-only": "it plans without a run, so there is none to resume",
    "--estimate": "it is about a run that has not begun; `fleet status` shows the estimates of this one",
}
"""Options of `fleet run` that `fleet resume` can't have, and why."""
CHAOS = "chaos injects faults, in a checkout of fleet: `make chaos SMALL=1` or `python -m chaos.rates`"
REPLACED = {
    **dict.fromkeys(("fleet rehearse --with-faults", "fleet rehearse --faults", "fleet rehearse --seed"), CHAOS),
    "--install-completion": "`fleet completion --install` does that",
    "--show-completion": "`fleet completion bash` prints the script, also for zsh and fish",
}
"""Options that were removed or never existed, of one verb or of any, and what replaces them."""


def usage_error(error: TyperException) -> UsageError:
    """What Typer found wrong with the command, in our words."""
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "fleet"
    options = [name for parameter in context.command.params for name in parameter.opts] if context is not None else []
    if (option := getattr(error, "option_name", None)) is not None and "No such option" in error.message:
        return _unknown_option(path, option, options)
    if context is not None and hasattr(context.command, "commands") and "No such command" in error.message:
        return unknown_verb(path, error.message.partition("'")[2].partition("'")[0], list(context.command.commands))
    message = safe(error.format_message()).rstrip(".")
    return UsageError(f"{message[:1].lower()}{message[1:]}", hint=f"see `{path} --help`")


def missing_verb(path: str, verbs: list[str]) -> UsageError:
    return UsageError(f"`{path}` needs a verb", hint=f"there are {', '.join(verbs)}")


def _unknown_option(path: str, option: str, options: list[str]) -> UsageError:
    message = f"`{path}` has no option {safe(option)}"
    if hint := REPLACED.get(f"{path} {option}") or REPLACED.get(option):
        return UsageError(message, hint=hint)
    if path == "fleet resume" and option in NOT_FOR_RESUME:
        return UsageError(message, hint=NOT_FOR_RESUME[option])
    near = did_you_mean(option, options).removeprefix("; ")
    return UsageError(message, hint=f"{near} see `{path} --help`".strip())


def unknown_verb(path: str, verb: str, verbs: list[str]) -> UsageError:
    near = did_you_mean(verb, verbs).removeprefix("; ")
    known = f"`{path} --help` lists all" if path == "fleet" else f"there are {', '.join(verbs)}"
    if not near and path != "fleet" and verb in VERBS:
        near = f"did you mean `fleet {verb}`?"
    return UsageError(f"`{path}` has no verb {safe(verb)!r}", hint=f"{near} {known}".strip())
