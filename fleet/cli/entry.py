"""The program: the group of its commands, its exit codes, and the output of errors."""

import json
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, cast

import typer
import typer.core
import typer.main
from typer.completion import completion_init  # type: ignore[attr-defined] # Typer exports it to no type checker
from typer.core import CompletionItem  # type: ignore[attr-defined]
from typer.exceptions import TyperException

from dashboards.text.safe import safe
from fleet import __version__
from fleet.cli import verbosity
from fleet.cli.verb_table import GROUPS, VERBS
from fleet.config.environment import set_default
from fleet.core.base.ids import suggestion
from fleet.errors import HINT, FleetError, UsageError
from fleet.features.parts import load_part

BUG = 70  # EX_SOFTWARE of sysexits.h
EPILOG = """\
`fleet help VERB` shows the options and examples of a verb. All verbs accept --json, --color, -q (quiet) and -v
(verbose). Verbs about a run accept RUN or --run, and -C DIR to select another repository.
"""

completion_init()


class InterruptedByUserError(FleetError):
    """Ctrl-C in a verb that does not handle it."""

    exit_code = 130
    code = "interrupted"


class LazyCommands(Mapping[str, Any]):
    """The commands by name. Imports the module of a verb on first access."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


@cache
def _command(name: str) -> Any:
    place = VERBS[name].place
    module, _, attribute = place.partition(":")
    verb = load_part(place) if "." in module else getattr(import_module(f"fleet.cli.verbs.{module}"), attribute)
    if isinstance(verb, typer.Typer):
        group: Any = typer.main.get_group(verb)
        group.name = name
        _add_common(group.commands.values())
        return group
    single = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    single.command(name=name)(verb)
    command = typer.main.get_command(single)
    _add_common([command])
    return command


def _choose_color(mode: str) -> str:
    if mode not in verbosity.MODES:
        near = suggestion(mode, verbosity.MODES)
        raise UsageError(f"invalid value for --color: {mode!r}", hint=near or f"use {', '.join(verbosity.MODES)}")
    verbosity.choose_color(mode)
    return mode


def _be_quiet(*, wanted: bool) -> None:
    if wanted:
        verbosity.choose("quiet")


def _be_verbose(*, wanted: bool) -> None:
    if wanted:
        verbosity.choose("verbose")


Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Print only results, errors and requests for a decision.",
        expose_value=False,
        callback=_be_quiet,
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Also print log messages and the traceback of an error.",
        expose_value=False,
        callback=_be_verbose,
    ),
]


def _only_common(
    color: Annotated[
        str,
        typer.Option(
            "--color",
            metavar="|".join(verbosity.MODES),
            help="When to use color: auto, always or never.",
            is_eager=True,
            expose_value=False,
            callback=_choose_color,
        ),
    ] = "auto",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """The options that every verb has."""


def _add_common(commands: Iterable[Any]) -> None:
    """Add --color, -q and -v to each command. Otherwise Typer requires them as parameters of every function."""
    single = typer.Typer(add_completion=False)
    single.command()(_only_common)
    options = typer.main.get_command(single).params
    for command in commands:
        command.params.extend(options)


class VerbGroup(typer.core.TyperGroup):
    """The verbs of the table. Names and summaries come from the table, so help and completion import no verb."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.commands = cast("Any", LazyCommands())

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, verb.summary) for name, verb in verbs.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=VERBS[name].summary) for name in VERBS if name.startswith(incomplete)]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise InterruptedByUserError("interrupted") from interrupt


app = typer.Typer(
    cls=VerbGroup,
    name="fleet",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fleet {__version__}")
        raise typer.Exit


@app.callback(epilog=EPILOG)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Plan an epic, run many coding agents in parallel git worktrees, and land changes that pass their tests.

    fleet does not touch your checkout. The result is a new branch, fleet/RUN.

    \b
    Examples:
      fleet doctor                         check this machine
      fleet run "Add a health endpoint"    plan an epic, build it and land it
      fleet run epic.md --workers 100 --budget 20
      fleet watch                          watch the run in the terminal UI
      fleet status                         show the status of the latest run
      fleet merge                          merge the result into your branch
    """


def run_program(arguments: Sequence[str] | None = None) -> None:
    """Run the verb of the command line and exit with its exit code.

    Errors are printed to standard error. With --json they are also an object on standard output.
    """
    set_default("GIT_PYTHON_REFRESH", "quiet")  # without git, GitPython would raise when it is imported
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        code = app(arguments, prog_name="fleet", standalone_mode=False)
    except BrokenPipeError:  # `fleet logs x | head`
        sys.stderr.close()
        sys.exit(0)
    except FleetError as error:
        verbosity.show_origin(error)
        sys.exit(_report(error, as_json=as_json))
    except KeyboardInterrupt:
        sys.exit(_report(InterruptedByUserError("interrupted"), as_json=as_json))
    except TyperException as error:
        sys.exit(_report(_usage_error(error), as_json=as_json))
    except Exception as bug:  # noqa: BLE001 - the last place that can report it
        traceback.print_exc()
        sys.exit(_report(BugError(bug), as_json=as_json))
    sys.exit(code if isinstance(code, int) else 0)


class BugError(FleetError):
    """An unexpected exception."""

    exit_code = BUG
    code = "internal"

    def __init__(self, bug: Exception) -> None:
        what = "".join(traceback.format_exception_only(bug)).strip()
        super().__init__(f"internal error: {what}", hint="please report this bug with the traceback above")


def _usage_error(error: TyperException) -> FleetError:
    context: Any = getattr(error, "ctx", None)
    if type(error).__name__ != "NoArgsIsHelpError":
        return usage_error(error)
    sys.stderr.write(f"{error.format_message()}\n")
    return missing_verb(context.command_path, list(context.command.commands))


def _report(error: FleetError, *, as_json: bool) -> int:
    """Print an error and its hint. Return the exit code."""
    if as_json:
        from fleet.read.base_view import dump_view  # noqa: PLC0415 - pydantic costs help a third of its time
        from fleet.read.question_view import ErrorView, FailedView  # noqa: PLC0415

        view = FailedView(ErrorView(error.code, error.message, error.hint, error.exit_code))
        sys.stdout.write(json.dumps(dump_view(view), indent=2, ensure_ascii=False) + "\n")
    label, hint = "error:", HINT.strip()
    if verbosity.is_wanted(sys.stderr):
        label, hint = f"\x1b[1;31m{label}\x1b[0m", f"\x1b[1;36m{hint}\x1b[0m"
    sys.stderr.write(f"{label} {error.message}\n")
    if error.hint:
        sys.stderr.write(f"{hint} {error.hint}\n")
    return error.exit_code


# ---- usage errors ----------------------------------------------------------------------------------------------------
# Typer reports mistakes in a command in several forms. Here they become a message and a hint.


KEPT = "a run keeps its original {}: start another run with `fleet run`"
NOT_FOR_RESUME = {
    **{option: KEPT.format(option) for option in ("--base", "--name", "--plan", "--set", "--flat", "--review")},
    "--plan-only": "it creates a plan without a run: use it with `fleet run`",
    "--estimate": "it estimates a new run: `fleet status` shows the estimates of this one",
}
"""Options of `fleet run` that `fleet resume` does not accept, with a hint for each."""
CHAOS = "to inject faults, run `make chaos SMALL=1` in a checkout of fleet"
REPLACED = {
    **dict.fromkeys(("fleet rehearse --with-faults", "fleet rehearse --faults", "fleet rehearse --seed"), CHAOS),
    "--install-completion": "run `fleet completion --install`",
    "--show-completion": "run `fleet completion bash`, or zsh or fish",
}
"""Options that do not exist in one verb or in any, with their replacement as a hint."""


def usage_error(error: TyperException) -> UsageError:
    """Convert an error of Typer into a `UsageError` with a hint."""
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "fleet"
    options = [name for parameter in context.command.params for name in parameter.opts] if context is not None else []
    if (option := getattr(error, "option_name", None)) is not None and "No such option" in error.message:
        return _unknown_option(path, option, options)
    if context is not None and hasattr(context.command, "commands") and "No such command" in error.message:
        return unknown_verb(path, error.message.partition("'")[2].partition("'")[0], list(context.command.commands))
    message = safe(error.format_message()).rstrip(".").partition(", unable to parse")[0].replace("Input should", "must")
    return UsageError(f"{message[:1].lower()}{message[1:]}", hint=f"run `{path} --help`")


def missing_verb(path: str, verbs: list[str]) -> UsageError:
    return UsageError(f"`{path}` requires a verb", hint=f"use one of {', '.join(verbs)}")


def _unknown_option(path: str, option: str, options: list[str]) -> UsageError:
    message = f"unknown option for `{path}`: {safe(option)}"
    if hint := REPLACED.get(f"{path} {option}") or REPLACED.get(option):
        return UsageError(message, hint=hint)
    if path == "fleet resume" and option in NOT_FOR_RESUME:
        return UsageError(message, hint=NOT_FOR_RESUME[option])
    return UsageError(message, hint=suggestion(option, options) or f"run `{path} --help`")


def unknown_verb(path: str, verb: str, verbs: list[str]) -> UsageError:
    known = f"run `{path} --help` to list all verbs" if path == "fleet" else f"use one of {', '.join(verbs)}"
    near = suggestion(verb, verbs)
    if not near and path != "fleet" and verb in VERBS:
        near = f"did you mean `fleet {verb}`?"
    return UsageError(f"unknown verb {safe(verb)!r} for `{path}`", hint=near or known)
