"""Code shared by several verbs: options, the configuration, finding a run, requests to it, output."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import anyio
import typer

from dashboards.text.formats import duration, painted
from dashboards.text.safe import safe
from fleet.cli import verbosity
from fleet.cli.verbosity import is_quiet, show_note
from fleet.config.environment import current
from fleet.config.load import Loaded, load_config
from fleet.config.schema import State
from fleet.core.base.ids import RunId, SubtaskId, is_slug, suggestion
from fleet.core.facts.facts import Fact
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Reviewing
from fleet.core.plans.plan import Plan, Subtask
from fleet.core.policy.requests import Request, request_problem
from fleet.core.state.state import RunState
from fleet.errors import HINT, FleetError, UsageError, first_error
from fleet.ports.worktrees import EffectError
from fleet.read.base_view import Finding, View, dump_view
from fleet.read.question_view import RequestView
from fleet.read.run import RunSnapshot, just_after
from fleet.runs.journal import Journal
from fleet.runs.run_folder import (
    FirstFact,
    RunFolder,
    find_run,
    git_folder,
    root_of,
    runs_by_start,
    without_collections,
)
from worktrees.base.process import end_descendants

if TYPE_CHECKING:
    from fleet.read.report_data import ReportData

Result = TypeVar("Result")
AnyView = TypeVar("AnyView", bound=View)

NAMED_SUBTASKS = 12  # a message lists the subtasks of a plan up to this size

# ---- completion ------------------------------------------------------------------------------------------------------
# Completes the names in journals. Typer completes verbs and options.
#
# The names reach a shell, so each is checked again with `is_slug`. An unreadable journal is skipped.


NAMING = (
    *("run_started", "plan_revised", "plan_rejected", "rollback_started"),
    *("question_asked", "question_answered", "retry_requested"),
)
"""The facts that name subtasks and questions. Even a long journal has few of them."""


def run_names(context: typer.Context) -> list[str]:
    """The runs of the repository, or of all repositories if it has none, the latest first."""
    with suppress(FleetError, OSError):
        return [folder.run for folder in _runs(context)]
    return []


def subtask_ids(context: typer.Context) -> list[str]:
    """The subtasks of the run in `--run`, or of the latest run."""
    run = _run(context)
    return [id_ for id_ in run.plan.ids if is_slug(id_)] if run is not None else []


def question_ids(context: typer.Context) -> list[str]:
    """The open questions of the run, the latest first."""
    run = _run(context)
    return [question.id for question in reversed(run.question_lines())] if run is not None else []


def _runs(context: typer.Context) -> list[RunFolder]:
    here = git_folder(repository_of(context))
    runs = [run for run in reversed(runs_by_start(state_dir())) if is_slug(run.folder.run)]
    return [run.folder for run in [run for run in runs if run.is_of(here)] or runs]


def repository_of(context: typer.Context) -> Path:
    return Path(context.params.get("repo") or ".")


def _run(context: typer.Context) -> RunSnapshot | None:
    """Read only the facts that name subtasks and questions."""
    named: Any = context.params.get("named")
    run: RunSnapshot | None = None
    with suppress(FleetError, OSError, LookupError, ValueError):
        folder = find_run(state_dir(), named) if named else _runs(context)[0]
        with Journal(folder.journal) as journal:
            for fact in journal.facts_of(*NAMING):
                run = just_after(evolve(run.state if run is not None else None, fact))
    return run


# ---- options ---------------------------------------------------------------------------------------------------------


RunName = Annotated[
    str | None,
    typer.Option(
        "--run", metavar="RUN", help="The run (default: the latest in this repository).", autocompletion=run_names
    ),
]
RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="The run (default: the latest in this repository).", autocompletion=run_names),
]
SubtaskArgument = Annotated[
    str, typer.Argument(metavar="SUBTASK", help="The id of a subtask.", autocompletion=subtask_ids)
]
AttemptNumber = Annotated[
    int | None, typer.Option("--attempt", "-n", metavar="N", help="The attempt (default: the last).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, errors included.")]
Repo = Annotated[Path, typer.Option("--repo", "-C", metavar="DIR", help="The repository (default: the current one).")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip confirmation prompts.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Use this configuration file.")]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="Base URL of a service that implements the Messages API."),
]
Sandbox = Annotated[
    str | None,
    typer.Option(
        "--sandbox", metavar="bubblewrap|none", help="Sandbox for commands. With none, they run with your permissions."
    ),
]
SetupNetwork = Annotated[
    bool, typer.Option("--setup-network", help="Allow network access for the setup command, on the base commit only.")
]
Metrics = Annotated[
    str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics at HOST:PORT.")
]
Otlp = Annotated[
    str | None, typer.Option("--otlp", metavar="URL", help="Send traces to this OpenTelemetry collector, over HTTP.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="Maximum number of agents at the same time.")
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget", metavar="USD", help="Maximum cost in USD. fleet does not make calls that would exceed it."
    ),
]
REVIEWERS = "human (default on a terminal), auto (default elsewhere, uses the [review] rules) or none"
Review = Annotated[str | None, typer.Option(metavar="human|auto|none", help=f"Approver of the plan: {REVIEWERS}.")]
HERE = Path()
Pause = Callable[[float], Awaitable[None]]
"""Waits for the given number of seconds."""


# ---- configuration and runs -----------------------------------------------------------------------------------------


def configuration(
    repository: Path = HERE, config_file: Path | None = None, flags: Mapping[str, object] | None = None
) -> Loaded:
    root = root_of(repository)
    return load_config(environ=current(), flags=flags or {}, config_file=config_file, repository=root)


def configuration_of(
    state: RunState,
    config_file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    *,
    secrets: bool = True,
) -> Loaded:
    """The configuration that an existing run was started with, changed by `flags` and the file.

    Without `secrets`, values that a run does not store may be missing. Use this only to read.
    """
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    return load_config(
        environ=current(),
        flags={"box.sandbox": state.sandbox, "models.base_url": state.base_url, **given},
        config_file=config_file,
        repository=root_of(Path(state.repository)),
        before=state.choices if secrets else state.choices.model_copy(update={"withheld": {}}),
    )


def state_settings() -> State:
    """The state directory and its limit. Ignores the repository's fleet.toml, which must not hide runs."""
    return load_config(environ=current(), repository=None).config.state


def state_dir() -> Path:
    return Path(state_settings().dir)


def run_to_read(name: str | None, named: str | None, repo: Path) -> RunFolder:
    """The run that a verb reads: the named one, the latest in the repository, or the latest of all with a note."""
    if (chosen := _one_name(name, named)) is not None:
        return find_run(state_dir(), chosen)
    here, latest = _latest_runs(repo)
    if here is not None:
        return here.folder
    if latest.state is not None:
        show_note(f"note: {_no_run_of(repo)}. Using {_whose(latest)}")
    return latest.folder


def run_to_change(name: str | None, named: str | None, repo: Path, *, yes: bool) -> RunFolder:
    """The run that a verb changes: the named one or the latest in the repository. Asks before it takes another."""
    if (chosen := _one_name(name, named)) is not None:
        return find_run(state_dir(), chosen)
    here, latest = _latest_runs(repo)
    if here is not None:
        return here.folder
    other = latest.folder.run
    if has_terminal() and not yes:
        typer.echo(f"{_no_run_of(repo)}. Use {_whose(latest)}? [y/N] ", nl=False)
        if read_answer().strip().lower() in {"y", "yes"}:
            return latest.folder
    raise UsageError(_no_run_of(repo), hint=f"use --run {other} for the latest run, in {_place(latest)}")


def _one_name(name: str | None, named: str | None) -> str | None:
    """The name given as RUN or as --run."""
    if name is not None and named is not None and name != named:
        raise UsageError(f"the run is named twice: {name} and --run {named}", hint="use either RUN or --run")
    return name if name is not None else named


def _latest_runs(repo: Path) -> tuple[FirstFact | None, FirstFact]:
    """The latest run of the repository, and of all."""
    folder = state_dir()
    runs = runs_by_start(folder)
    if not runs:
        raise UsageError(f"no runs in {folder} yet", hint='start one: fleet run "Add a health endpoint"')
    here = git_folder(repo)
    return next((run for run in reversed(runs) if run.is_of(here)), None), runs[-1]


def _no_run_of(repo: Path) -> str:
    where = safe(repo.absolute())
    return f"no runs in {where}" if git_folder(repo) is not None else f"{where} is not in a git repository"


def _whose(run: FirstFact) -> str:
    return f"{run.folder.run}, a run in {_place(run)}"


def _place(run: FirstFact) -> str:
    return safe(run.state.repository) if run.state is not None else "an unknown repository"


class HasPlan(Protocol):
    """A run with its plan."""

    @property
    def run(self) -> RunId: ...

    @property
    def plan(self) -> Plan: ...


def find_subtask(state: HasPlan, id_: str) -> Subtask:
    spec = state.plan.subtask(SubtaskId(id_))
    if spec is None:
        near = suggestion(id_, state.plan.ids)
        raise UsageError(f"no subtask {id_!r} in {state.run}", hint=near or _subtasks_of(state))
    return spec


def _subtasks_of(state: HasPlan) -> str:
    """Return a hint with the subtasks of a small plan."""
    ids = state.plan.ids
    if len(ids) > NAMED_SUBTASKS:
        return f"run `fleet plans show {state.run}` to list its {len(ids)} subtasks"
    return f"its subtasks are {', '.join(ids)}" if ids else "its plan is still empty"


# ---- requests -------------------------------------------------------------------------------------------------------


def check_request(state: RunState, request: Request) -> None:
    if (problem := request_problem(state, request)) is not None:
        raise UsageError(problem)


def send_requests(folder: RunFolder, *requests: Request) -> None:
    """Put requests into the inbox that the run's engine reads."""
    with Journal(folder.journal) as journal:
        for request in requests:
            journal.ask(request)


def confirm_request(folder: RunFolder, kind: str, message: str, *, as_json: bool) -> None:
    """Print that a request was sent, and whether an engine is running to apply it."""
    alive = folder.alive
    if as_json:
        show_json(RequestView(run=folder.run, request=kind, message=message, alive=alive))
        return
    typer.echo(f"{folder.run}: {message}")
    if not alive:
        typer.echo(f"No engine is running. `fleet resume {folder.run}` starts one.")


def make_request(folder: RunFolder, request: Request, message: str, *, as_json: bool = False) -> None:
    """Check a request against the run after all pending requests, send it, and print `message`."""
    send_checked(folder, request)
    confirm_request(folder, request.kind, message, as_json=as_json)


def send_checked(folder: RunFolder, request: Request) -> None:
    """Send a request. Raises `UsageError` if the run can't apply it after all pending requests."""
    problem = request_problem(folder.requested_state(), request)
    if problem is not None:
        is_pending = request_problem(folder.state(), request) is None and not folder.alive
        raise UsageError(
            problem, hint=f"run `fleet resume {folder.run}` to apply the pending requests" if is_pending else ""
        )
    send_requests(folder, request)


# ---- input and output -----------------------------------------------------------------------------------------------


def has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def read_answer() -> str:
    """Read a line from standard input, an empty string at its end."""
    return sys.stdin.readline()


def show(lines: Iterable[str], paint: Callable[[str], str] = painted) -> None:
    """Print lines, in color if the output takes it."""
    in_color = verbosity.is_wanted()
    for line in lines:
        typer.echo(paint(line) if in_color else line, color=in_color)


def show_json(shown: View | Sequence[View]) -> None:
    """Print a view, or a list of them, as JSON."""
    show_data([dump_view(view) for view in shown] if isinstance(shown, Sequence) else dump_view(shown))


def show_data(data: object) -> None:
    """Print data that is not a view, such as the configuration or a conversation, as JSON."""
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def show_view(view: AnyView, lines: Callable[[AnyView], Iterable[str]], *, as_json: bool) -> None:
    """Print a view as JSON, or as text made by `lines`."""
    if as_json:
        show_json(view)
    else:
        show(lines(view))


FINDING_LABELS = {"ok": "ok", "warning": "WARN", "failure": "FAIL"}


def show_findings(findings: Iterable[Finding]) -> None:
    for finding in findings:
        show([f"{FINDING_LABELS[finding.state]:<4}  {finding.what:<12} {finding.says}"])
        if finding.fix:
            show([f"{'':<18} → {finding.fix}"])


def check_output(path: Path, *, force: bool) -> None:
    """Raise `UsageError` if a file can't be written at this path. Call it before the work starts."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint="use the path of a file")
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} already exists", hint="use --force to overwrite it")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise UsageError(f"can't write {path}", hint="use a directory that exists and that you may write to")


def write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def run_async(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run to the end. Unwraps errors that the user can fix from exception groups, as `FleetError`s."""

    async def stoppable() -> Result:
        with hard_stop([signal.SIGINT], after=1):
            return await main()

    try:
        return anyio.run(stoppable)
    except EffectError as error:
        raise FleetError(error.failure.summary) from error
    except BaseExceptionGroup as group:
        for kind in (FleetError, KeyboardInterrupt, EffectError):
            if (matching := group.subgroup(kind)) is not None:
                first = first_error(matching)
                raise (FleetError(str(first)) if isinstance(first, EffectError) else first) from group
        raise


# ---- reading ---------------------------------------------------------------------------------------------------------
# Shows the progress of reading a long journal on a terminal, if that takes longer than a second.


FIRST_S, EVERY_S = 1.0, 0.2
LINE = 70


class ReadingProgress:
    """Shows the progress of reading a journal, on a line of standard error if that is a terminal."""

    def __init__(self, run: str, *, clock: Callable[[], float] = monotonic, is_terminal: bool | None = None) -> None:
        self._is_wanted = not is_quiet() and (sys.stderr.isatty() if is_terminal is None else is_terminal)
        self._run = safe(run, limit=LINE // 2)
        self._clock = clock
        self._next = clock() + FIRST_S
        self._is_shown = False

    def show(self, read: int, total: int) -> None:
        if self._is_wanted and self._clock() >= self._next:
            self._next, self._is_shown = self._clock() + EVERY_S, True
            text = f"reading {self._run}: {read:,} of {total:,} facts"
            typer.echo(f"\r{text:<{LINE}}", err=True, nl=False)

    def clear(self) -> None:
        if self._is_shown:
            typer.echo(f"\r{' ' * LINE}\r", err=True, nl=False)


@contextmanager
def _shown(progress: ReadingProgress) -> Iterator[Callable[[int, int], None]]:
    try:
        yield progress.show
    finally:
        progress.clear()


def read_state(folder: RunFolder, progress: ReadingProgress | None = None) -> RunState:
    """Read the state of a run and show the progress."""
    with _shown(progress or ReadingProgress(folder.run)) as show:
        return folder.state(show)


@contextmanager
def reading(folder: RunFolder, journal: Journal) -> Iterator[Iterator[tuple[int, Fact]]]:
    """Yields all facts of a run with their numbers. They are read in slices while the block is open."""

    def facts() -> Iterator[tuple[int, Fact]]:
        for seq, fact in journal.each():
            show(seq, total)
            yield seq, fact

    total = journal.last
    with _shown(ReadingProgress(folder.run)) as show, without_collections():
        yield facts()


def report_of(folder: RunFolder) -> "ReportData":
    """The data of a run's report. Raises `FleetError` for a run without facts."""
    from fleet.read.report_data import report_data  # noqa: PLC0415 - only for reports

    with Journal(folder.journal) as journal, reading(folder, journal) as facts:
        data = report_data((fact for _, fact in facts), time.time(), alive=folder.alive)
    if data is None:
        raise FleetError(
            f"{folder.run} is empty: it was stopped before it started", hint=f"delete it: rm -r {folder.path}"
        )
    return data


# ---- clock -----------------------------------------------------------------------------------------------------------
# Shows the current step of long work and its duration on standard error.


TICK_S, REMIND_S = 1.0, 30.0  # the interval between two lines: on a terminal, and elsewhere
COMMAND = 200  # characters of a command
LABEL = 40
SHOWN = LABEL + 25  # of the line with the time


class RunClock:
    """Shows the current step and its duration on standard error, unless it is quiet.

    On a terminal it updates a line every second. Otherwise it prints a line every 30 seconds.
    """

    def __init__(self, *, quiet: bool = False, is_terminal: bool | None = None, every_s: float | None = None) -> None:
        self._step = ""
        self._since = 0.0
        self._quiet = quiet or is_quiet()
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._every_s = every_s or (TICK_S if self._is_terminal else REMIND_S)

    def begin(self, step: str, command: str) -> None:
        """Print that a step starts, and show its time from now on."""
        self.time(step)
        if not self._quiet:
            typer.echo(f"{step}: {safe(command, limit=COMMAND)} …", err=True)

    def time(self, step: str) -> None:
        """Show the time of a step from now on."""
        self.stop()
        self._step, self._since = safe(step, limit=LABEL), time.monotonic()

    def stop(self) -> None:
        """Stop showing the time until the next step, so that other output can be printed."""
        if self._step and self._is_terminal and not self._quiet:
            typer.echo(f"\r{' ' * SHOWN}\r", err=True, nl=False)
        self._step = ""

    async def tick(self) -> None:
        while not self._quiet:
            await anyio.sleep(self._every_s)
            if self._step:
                text = f"{self._step}: {duration(time.monotonic() - self._since)} so far"
                typer.echo(f"\r{text}" if self._is_terminal else text, err=True, nl=not self._is_terminal)


def run_with_clock(main: Callable[[], Coroutine[Any, Any, Result]], clock: RunClock) -> Result:
    """Run to the end like `run_async`, with the clock."""

    async def timed() -> Result:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.tick)
            try:
                result = await main()
            finally:
                clock.stop()
            tasks.cancel_scope.cancel()
        return result

    return run_async(timed)


# ---- flags -----------------------------------------------------------------------------------------------------------
# Converts options of the command line to keys of the configuration and limits of a run.


KEYS = {
    "allow_red_base": "checks.allow_red_base",
    "base_url": "models.base_url",
    "flat": "run.flat",
    "gate": "checks.gate",
    "metrics": "metrics.listen",
    "not_between": "run.not_between",
    "otlp": "traces.otlp",
    "sandbox": "box.sandbox",
    "setup_network": "worktrees.setup_network",
}
"""The key of the configuration that an option sets."""

WITH_NETWORK = "base"
"""The value that `--setup-network` sets: network access for the setup command on the base commit only."""

Limits = Mapping[str, int | float | None]


def limits_of(
    *,
    workers: int | None = None,
    budget: float | None = None,
    minutes: float | None = None,
    tokens: int | None = None,
    attempts: int | None = None,
) -> dict[str, int | float | None]:
    """The limits set by options, by their names in the configuration and in the journal."""
    budgets = {"dollars": budget, "minutes": minutes, "tokens": tokens, "attempts": attempts}
    return {"workers": workers, **{f"budget_{unit}": value for unit, value in budgets.items()}}


def flags(limits: Limits | None = None, **options: str | bool | float | None) -> dict[str, object]:
    """The keys of the configuration set by the options given."""
    given = {KEYS[name]: _value(name, value) for name, value in options.items()} | {
        f"run.{name}": value for name, value in (limits or {}).items()
    }
    return {key: value for key, value in given.items() if value is not None}


def _value(option: str, value: str | bool | float | None) -> str | bool | float | None:
    if value is False:
        return None
    return WITH_NETWORK if option == "setup_network" and value else value


EXIT = {"landed": 0, "partial": 1, "cancelled": 1, "aborted": 1, "failed": 3, "budget": 4, None: 130}


def reviewing_of(review: str | None, *, yes: bool, by_human: bool) -> Reviewing:
    """Choose who approves the plan. Without a terminal it is the `[review]` rules."""
    if review is not None and yes:
        raise UsageError(
            "--yes and --review can't be used together", hint="use --yes (the same as --review none) or --review"
        )
    match review:
        case "human" | "auto" | "none":
            return review
        case None:
            return "none" if yes else "human" if by_human else "auto"
        case _:
            raise UsageError(f"invalid value for --review: {review!r}", hint="use human, auto or none")


# ---- hard stop -------------------------------------------------------------------------------------------------------
# The second Ctrl-C ends this process within a second.
#
# A stopped helper process or a dead disk can block a thread, and a thread can block the end of the process. So a
# separate thread kills first the helpers, then this process. A run can be resumed after that, as after any kill.


GRACE_S = 0.7  # for a clean stop
HELPERS_S = 0.2  # for git to remove its locks
EXIT_CODE = 130


@contextmanager
def hard_stop(stops: Sequence[signal.Signals], hint: str = "", *, after: int = 0) -> Iterator[None]:
    """While the block is open, a signal of `stops` ends the process soon, in addition to its usual handler.

    The first `after` signals do not end it. An event loop sees a signal only on its next turn, so it can't do this.
    `hint` is printed at the end.
    """
    before, met = {number: signal.getsignal(number) for number in stops}, [0]

    def handle(number: int, frame: FrameType | None) -> None:
        met[0] += 1
        if met[0] > after:
            end_soon(hint)
        if callable(other := before[signal.Signals(number)]):
            other(number, frame)

    if threading.current_thread() is threading.main_thread():
        for number in stops:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, other in before.items():
            if signal.getsignal(number) is handle and not (after and met[0]):
                signal.signal(number, other)


def end_soon(hint: str = "") -> None:
    """End this process after the grace period, unless it has ended before."""
    timer = threading.Timer(GRACE_S, end_now, [hint])
    timer.daemon = True
    timer.start()


def end_now(hint: str) -> None:
    end_descendants(HELPERS_S)
    message = f"\nstopped without waiting\n{hint and f'{HINT}{hint}'}\n"
    if sys.stderr.isatty():
        message = f"\x1b[?25h{message}"  # the cursor, which live lines hide
    os.write(2, message.encode())
    os._exit(EXIT_CODE)
