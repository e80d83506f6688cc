"""`fleet init` detects and writes the gate of a repository. `fleet try` runs the gate or a command in the sandbox."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dashboards.text.formats import duration
from dashboards.text.incident_text import advice_lines, cause_lines, check_lines
from dashboards.text.safe import safe
from fleet.app.wiring import Wiring
from fleet.cli import common
from fleet.cli.common import (
    HERE,
    AsJson,
    ConfigFile,
    Force,
    Repo,
    RunClock,
    Sandbox,
    SetupNetwork,
    Yes,
    flags,
    run_with_clock,
)
from fleet.config.environment import current
from fleet.config.layer import Key
from fleet.config.load import REPOSITORY_FILE, Loaded, load_config, set_in_file, user_file_path
from fleet.config.schema import Config
from fleet.core.base.ids import slug
from fleet.errors import UsageError
from fleet.features.recipes.find import FoundCommands, find_recipes
from fleet.features.recipes.init_view import InitView, TrialView, TriedCommandView, UserConfigKey, Verdict
from fleet.features.recipes.lacking import private_files
from fleet.features.recipes.recipe import Recipe, fleet_toml, together
from fleet.features.recipes.tree import Tree
from fleet.features.recipes.trials import (
    Permission,
    Settled,
    TrialOrder,
    Trials,
    TrialSettings,
    Tried,
    chain_of,
    read_project,
    try_out,
)
from fleet.runs.run_folder import root_of
from worktrees.sandbox.box import has_program

GATE_S = 900.0  # timeout of the gate in a trial
LINE = 160  # characters of a command
NOT_ALLOWED = "not allowed: answer yes, or use --yes"


def init(
    repo: Repo = HERE,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the candidates and the file, then exit.")] = False,
    no_try: Annotated[bool, typer.Option("--no-try", help="Write the most likely recipe without running it.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Time limit for one run of the gate, in seconds.")
    ] = GATE_S,
    timer: Annotated[
        bool, typer.Option("--timer", help="Print systemd units that resume the latest run every evening, then exit.")
    ] = False,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Detect how to test this repository and write fleet.toml.

    It looks for the test command, the setup command and the files that tests need, and runs the candidates in the
    sandbox on HEAD until one passes. It writes this one, with a reason for each line. It asks before it allows network
    access for setup commands, or access to tool chains in your home. Both are saved in your own configuration.

    Exit codes: 0 written, 1 no candidate passed, 2 usage error, 3 the sandbox is not available.

    \b
    Examples:
      fleet init
      fleet init --yes && fleet try
      fleet init --dry-run              show the candidates, and the file for the first
      fleet init --no-try --force       write the most likely recipe again, to edit it
      fleet init --timer                print a systemd timer
    """
    root = _root(repo)
    if timer:
        settings = common.configuration(repo, config, {}).config
        units = timer_units(root, key=settings.models.api_key_env, drain_minutes=settings.limits.drain_minutes)
        typer.echo(units)
        return
    path = root / REPOSITORY_FILE
    _check_file(path, force=force, dry_run=dry_run)
    given = flags(sandbox=sandbox) | {"checks.gate_timeout_s": timeout}
    loaded = load_config(environ=current(), flags=given, config_file=config)
    worktrees = Wiring(loaded.config, current()).worktrees
    tree = common.run_async(partial(read_project, root, partial(has_program, worktrees)))
    order = _Order(root, path, loaded.config, tree, find_recipes(tree))
    if dry_run or no_try or not order.found.parts:
        view = _untried(order, write=not dry_run)
    else:
        view = _try(order, _Person(yes=yes, quiet=as_json, clock=RunClock(quiet=as_json)))
    common.show_view(view, result_lines, as_json=as_json)
    raise typer.Exit(0 if view.text else 1)


@dataclass(frozen=True, slots=True)
class _Order:
    root: Path
    path: Path
    config: Config
    tree: Tree
    found: FoundCommands

    def text(self, recipe: Recipe | None, remarks: Iterable[str]) -> str:
        return fleet_toml(recipe, remarks, default_locks=frozenset(self.config.worktrees.lock_files))


def _root(repo: Path) -> Path:
    root = root_of(repo)
    if root is not None:
        return root
    folder = repo.absolute()
    if (folder / "HEAD").is_file() and (folder / "objects").is_dir():
        raise UsageError(
            f"{folder} is a bare repository: fleet.toml is read from a checkout",
            hint="run `fleet init` in a clone of it, or set checks.gate in your own configuration",
        )
    raise UsageError(f"{folder} is not in a git repository", hint="run `git init` to create one")


def _check_file(path: Path, *, force: bool, dry_run: bool) -> None:
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link", hint="remove it, or edit its target")
    if path.exists() and not force and not dry_run:
        raise UsageError(f"{path} already exists", hint="run `fleet try` to test it, or use --force to overwrite it")


# ---- questions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Person:
    """Asks the user for permissions and shows each trial."""

    yes: bool
    quiet: bool
    clock: RunClock

    def ask(self, what: Permission, name: str, why: str) -> bool:
        where = safe(str(user_file_path()))
        if what == "network":
            note = f'worktrees.setup_network = "base" in {where}'
            text = (
                f"The setup command downloads dependencies of the tests: {safe(why, limit=LINE)}\n"
                f"Allow setup commands to use the network, in this and all your other repositories ({note})? "
                "Checks and workers stay without network access."
            )
        else:
            note = f'box.tool_chains = ["{name}"] in {where}'
            text = f"{safe(why, limit=LINE)}. Give the sandbox read-only access to {name} in your home ({note})?"
        if self.yes:
            return True
        self.clock.stop()
        return not self.quiet and common.has_terminal() and typer.confirm(text, err=True)

    def report(self, tried: Tried) -> None:
        if self.quiet:
            return
        if tried.verdict is None:
            typer.echo(f"trying  {safe(tried.recipe.gate_command, limit=LINE)}  ({safe(tried.why, limit=LINE)})")
            if tried.recipe.setup:
                typer.echo(f"        after {safe(tried.recipe.setup, limit=LINE)}")
            self.clock.time("worktree")
        else:
            self.clock.stop()
            common.show(_verdict_lines(tried_view(tried)))


# ---- trials ---------------------------------------------------------------------------------------------------------


def _try(order: _Order, person: _Person) -> InitView:
    home = Wiring(order.config, current()).home
    settings = TrialSettings(
        order.config,
        current(),
        order.root,
        tool_chain_of=partial(chain_of, home=home, has_program=order.tree.has_program),
        other_chain_of=partial(chain_of, home=home, has_program=lambda _: False),
        progress=lambda step, _: person.clock.time(step),
    )
    trials = Trials(settings, order.tree, person.ask, person.report)
    settled = run_with_clock(partial(trials.settle, order.found), person.clock)
    green = settled.verdict in {"green", "no tests"}
    yours = tuple(_your_keys(order.config, settled.recipe, trials)) if green else ()
    text = order.text(settled.recipe, _remarks(settled, trials.tried)) if green else ""
    written = bool(text) and _write(order.path, text)
    notes = next((each.trial.notes for each in trials.tried if each.trial is not None), ())
    return InitView(
        repository=str(order.root),
        file=str(order.path),
        written=written,
        green=settled.verdict == "green",
        gate=settled.recipe.gate_command if green and settled.recipe is not None else "",
        text=text,
        tried=tuple(map(tried_view, trials.tried)),
        left_out=settled.left_out,
        user_keys=yours,
        notes=(*notes, *_private_note(order.tree)),
    )


def _remarks(settled: Settled, tried: Sequence[Tried]) -> Iterator[str]:
    passed = "It passed in the sandbox."
    yield "It passed in the sandbox, but did not run any tests." if settled.verdict == "no tests" else passed
    for folder in settled.left_out:
        commands = dict.fromkeys(each.recipe.gate_command for each in tried if (each.folder or ".") == folder)
        yield f"Without {folder}, because no candidate passed there. Tried: {', '.join(commands) or 'none'}."


def _your_keys(config: Config, recipe: Recipe | None, trials: Trials) -> Iterator[UserConfigKey]:
    """Write the keys that the result needs to your own configuration, and yield them."""
    if recipe is None:
        return
    keys = dict[Key, tuple[str | tuple[str, ...], str]]()
    if recipe.needs_network and config.worktrees.setup_network == "none":
        keys["worktrees", "setup_network"] = ("base", "the setup command downloads dependencies")
    wanted = frozenset(map(trials.settings.other_chain_of, recipe.programs))
    chains = tuple(name for what, name in trials.granted if what == "tool chain" and name in wanted)
    if chains:
        keys["box", "tool_chains"] = ((*config.box.tool_chains, *chains), "the gate runs programs from your home")
    for key, (value, why) in keys.items():
        set_in_file(user_file_path(), {key: list(value) if isinstance(value, tuple) else value})
        yield UserConfigKey(".".join(key), value, why, written=True)


def _untried(order: _Order, *, write: bool) -> InitView:
    """Return the most likely recipe without trying it."""
    found = order.found
    whole = found.whole[0] if len(found.parts) > 1 and found.whole else None
    parts = [part.recipes[0].within(part.folder) for part in found.parts]
    recipe = whole or (together(parts) if parts else None)
    text = order.text(recipe, ("Not tried yet. Run `fleet try` to try it.",) if recipe else ())
    candidates = [*(("", each) for each in found.whole)] if len(found.parts) > 1 else []
    candidates += [(part.folder, each.within(part.folder)) for part in found.parts for each in part.recipes]
    needs = recipe is not None and recipe.needs_network and order.config.worktrees.setup_network == "none"
    why = "the setup command downloads dependencies"
    return InitView(
        repository=str(order.root),
        file=str(order.path),
        written=write and _write(order.path, text),
        green=False,
        gate=recipe.gate_command if recipe else "",
        text=text,
        tried=tuple(tried_view(Tried(folder, each, each.why, "not tried")) for folder, each in candidates),
        left_out=(),
        user_keys=(UserConfigKey("worktrees.setup_network", "base", why, written=False),) if needs else (),
        notes=tuple(_private_note(order.tree)),
    )


def _write(path: Path, text: str) -> bool:
    """Write the file, unless it already has this text."""
    if not (path.is_file() and path.read_bytes() == text.encode()):
        common.write_file(path, text)
    return True


def _private_note(tree: Tree) -> Iterator[str]:
    names = ", ".join(private_files(tree)[:3])
    if names:
        yield (
            f"{names} may contain secrets and is hidden from workers. If tests need values from it, set them in "
            "[box.environment], or add the file to worktrees.include"
        )


# ---- text -----------------------------------------------------------------------------------------------------------


def tried_view(tried: Tried) -> TriedCommandView:
    trial = tried.trial
    return TriedCommandView(
        folder=tried.folder,
        kind=tried.recipe.kind,
        gate=tried.recipe.gate_command,
        setup=tried.recipe.setup,
        why=tried.why,
        verdict=tried.verdict or "not tried",
        seconds=trial.seconds if trial is not None else 0.0,
        causes=trial.causes if trial is not None else (NOT_ALLOWED,) if tried.recipe.needs_network else (),
    )


def _verdict_lines(tried: TriedCommandView) -> Iterator[str]:
    after = f" after {duration(tried.seconds)}" if tried.seconds else ""
    if tried.verdict == "not tried":
        yield f"skipped {safe(tried.gate, limit=LINE)}: its setup command needs the network, which is {NOT_ALLOWED}"
        return
    said = "passed, but did not run any tests" if tried.verdict == "no tests" else tried.verdict
    yield f"  {said}{after}"
    if tried.verdict not in {"green", "no tests"}:
        yield from (f"  | {safe(line, limit=LINE)}" for line in tried.causes)


def result_lines(view: InitView) -> Iterator[str]:
    """Describe the written files and the next step."""
    yield from (
        f"left out: {safe(folder)}: no candidate passed there, so the gate does not cover it"
        for folder in view.left_out
        if view.green
    )
    for key in view.user_keys:
        done = "wrote" if key.written else "needs"
        value = f'"{key.value}"' if isinstance(key.value, str) else f"{list(key.value)}"
        yield f"{done} {key.key} = {value} in {safe(str(user_file_path()))}: {key.why}"
    yield from (f"note: {safe(note, limit=500)}" for note in view.notes)
    if not view.text:
        yield "no candidate passed, so fleet.toml was not written"
        yield "next: fix the problems above, or write the most likely recipe with `fleet init --no-try` and edit it"
        return
    if not view.written:
        yield from (f"would try  {safe(each.gate, limit=LINE)}  ({safe(each.why, limit=LINE)})" for each in view.tried)
        yield f"would write {safe(view.file)}:"
        yield from (safe(line, limit=1000) for line in view.text.splitlines())
        return
    message = (
        f"the gate is {safe(repr(view.gate), limit=LINE)}" if view.gate else "no test command found, so set `gate`"
    )
    yield f"wrote {safe(view.file)}: {message}"
    if view.gate and view.tried and view.tried[-1].verdict == "no tests":
        yield "note: the gate passes without running tests, so a run would rely on the checks of its subtasks"
    yield 'next: run `fleet doctor`, then `fleet run "…"`' if view.green else "next: run `fleet try`"


# ---- timer -----------------------------------------------------------------------------------------------------------
# `fleet init --timer`: prints systemd units that resume the latest run every evening.


AT = "22:00"
UNITS = """\
# ~/.config/systemd/user/{name}.service
[Unit]
Description=fleet in {repository}

[Service]
Type=exec
WorkingDirectory={repository}
# Continues the latest run of the repository. For new work: {fleet} run --plan PLAN --plain --yes
ExecStart={fleet} resume --plain --yes
# Contains {key}=... Only you should be able to read it.
EnvironmentFile=-%h/.config/fleet/environment
# The first signal lets agents finish (limits.drain_minutes).
KillMode=mixed
TimeoutStopSec={stop_s}
# 1: some subtasks did not land, 2: no work left
SuccessExitStatus=1 2

# ~/.config/systemd/user/{name}.timer
[Unit]
Description=fleet in {repository}, every evening

[Timer]
OnCalendar=*-*-* {at}:00
Persistent=true

[Install]
WantedBy=timers.target

# Then run: systemctl --user daemon-reload && systemctl --user enable --now {name}.timer
# If you are not always logged in at that time, also run: loginctl enable-linger"""


def timer_units(root: Path, *, key: str, drain_minutes: float) -> str:
    """Return the units as text. Raises `UsageError` for paths that a unit can't contain."""
    repository = str(root)
    program = shutil.which("fleet") or f"{Path(sys.executable).parent / 'fleet'}"
    for path in (repository, program):
        if not path.isprintable() or any(mark in path for mark in "\"'\\ "):
            raise UsageError(
                f"systemd units can't contain spaces, quotes or backslashes: {path}", hint="use another path"
            )
    values = {"repository": repository.replace("%", "%%"), "fleet": program.replace("%", "%%")}
    return UNITS.format(name=f"fleet-{slug(root.name)}", key=key, stop_s=int(drain_minutes * 60) + 60, at=AT, **values)


# ---- trial -----------------------------------------------------------------------------------------------------------
# `fleet try`: runs the setup command and the gate in the sandbox, without a run.


TRIAL_LINE = 200  # characters of a command
EXIT: dict[Verdict, int] = {"green": 0, "no gate": 0, "red": 1, "setup failed": 3, "not possible": 3}


def try_command(
    command: Annotated[
        str | None, typer.Argument(metavar="COMMAND", help="The shell command to run (default: the gate).")
    ] = None,
    repo: Repo = HERE,
    base: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="The commit, branch or tag to test (default: HEAD).")
    ] = None,
    setup_network: SetupNetwork = False,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Test the setup command and the gate in the sandbox, without a run.

    The conditions are those of a run: a worktree of HEAD with included files, and no network access. A COMMAND replaces
    the gate. It does not call a model or need a key.

    Exit codes: 0 passed, 1 failed, 2 usage error, 3 the setup command failed or the sandbox is not available.

    \b
    Examples:
      fleet try
      fleet try "pytest -q tests/test_api.py"
      fleet try --setup-network         with network access for the setup command
      fleet try "ls node_modules/.bin" --json | jq -r .check.output
    """
    loaded = common.configuration(repo, config, flags(sandbox=sandbox, setup_network=setup_network))
    order = TrialOrder(repo, base, command)
    trial = run_trial(loaded, order, quiet=as_json)
    common.show_view(trial, trial_lines, as_json=as_json)
    raise typer.Exit(EXIT[trial.verdict])


def run_trial(loaded: Loaded, order: TrialOrder, *, quiet: bool = False) -> TrialView:
    """Run a trial, and show its progress on stderr unless `quiet`."""
    checks, trees = loaded.config.checks, loaded.config.worktrees
    if order.command is None and not checks.gate.strip() and not trees.setup.strip():
        raise UsageError(
            "neither a gate nor a setup command is configured",
            hint='run `fleet init` to detect them, or name a command: fleet try "make test"',
        )
    clock = RunClock(quiet=quiet)
    clock.time("worktree")
    progress = None if quiet else clock.begin
    return run_with_clock(partial(try_out, loaded.config, current(), order, progress), clock)


def trial_lines(trial: TrialView) -> Iterator[str]:
    """Show the verdict, the commands, and the next step."""
    yield f"{trial.verdict.upper()}  {safe(trial.base_name)} {trial.base[:7]}, {duration(trial.seconds)}"
    yield from step_lines(trial)
    yield from (f"  note: {safe(note)}" for note in trial.notes)
    if trial.verdict == "no gate":
        yield "  → no gate is configured: find a test command with `fleet init`, or set checks.gate in fleet.toml"


def step_lines(trial: TrialView) -> Iterator[str]:
    """Show the results of the setup command and the check, with advice for failures."""
    if trial.setup is not None:
        note = ", with network access" if trial.setup.network else ""
        yield from (f"  {line}" for line in check_lines(trial.setup.check, log=_log(trial), note=note))
    if trial.check is not None:
        yield from (f"  {line}" for line in check_lines(trial.check, log=_log(trial)))
    if trial.verdict == "not possible" and trial.failure is not None:
        yield f"  {safe(trial.failure.summary, limit=TRIAL_LINE)}"
        yield from (f"  {line}" for line in cause_lines(trial.causes))
    yield from advice_lines(trial.causes)


def _log(trial: TrialView) -> str:
    """Return the path of the failed command's log."""
    return f"{trial.logs}/{trial.failed.log}" if trial.failed is not None and trial.failed.log else ""
