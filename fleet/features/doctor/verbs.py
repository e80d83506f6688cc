"""`fleet doctor`: checks whether this machine can run fleet, and suggests a fix for each problem."""

import os
import platform
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import anyio
import typer

from agents.conversation.settings import WorkerSettings
from agents.models.client import open_client
from agents.models.exchange import Timeouts
from agents.models.prices import prices_of
from agents.workers.command import program_name, program_of
from agents.workers.registry import problems_of
from dashboards.text.safe import safe
from fleet.app.capacity import capacity
from fleet.app.fleet import Fleet, refuse_branch
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, BaseUrl, ConfigFile, Repo, RunClock, Sandbox, flags, run_with_clock
from fleet.config.environment import current
from fleet.config.schema import as_policy
from fleet.core.base.ids import RunId, result_branch
from fleet.core.plans.limits import parse_rung
from fleet.errors import FleetError
from fleet.features.doctor.probe import ProbeOutcome, Probes, Subject
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.ports.worktrees import EffectError
from fleet.read.base_view import Finding
from fleet.runs.run_folder import make_state_dir
from worktrees.git.program import ask_git, text
from worktrees.leases.overlay import choose_kind
from worktrees.sandbox.box import SYSTEM_PATH
from worktrees.sandbox.seccomp import filter_program
from worktrees.sandbox.self_test import find_sandbox_problems
from worktrees.sandbox.tool_chains import found_in
from worktrees.target.signing import CommitConventions, customs
from worktrees.target.target import inspect

TESTED_PYTHONS = ("3.11.2", "3.11.7", "3.12.1", "3.13.0", "3.14.7")
OLDEST_GIT = (2, 39)
LEAST_FREE_GB = 2.0
ANY_RUN = RunId("any-run")  # to check that a result branch can be created
CONNECT_S = 5.0
Progress = Callable[[str, str], None]
"""Called with each step and its command."""


def doctor(
    repo: Repo = HERE,
    base_url: BaseUrl = None,
    config: ConfigFile = None,
    sandbox: Sandbox = None,
    gate: Annotated[
        bool, typer.Option("--try", help="Also run the setup command and the gate in the sandbox, like `fleet try`.")
    ] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Also call the model service to test each model, caching and tools, for less than one cent."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine and suggest fixes.

    Each result is ok, a warning or a failure. Exits with code 3 if there is a failure.

    \b
    Examples:
      fleet doctor
      fleet doctor --live               also call the model service, for less than a cent
      fleet doctor --try                also run the setup command and the gate, on HEAD
      fleet doctor --repo ../service --json
    """
    loaded = common.configuration(repo, config, flags(sandbox=sandbox, base_url=base_url))
    clock = RunClock(quiet=as_json)
    clock.time("checking this machine")
    fleet = Fleet(loaded, current())
    findings = run_with_clock(lambda: examine(fleet, repo, gate=gate, clock=clock), clock)
    if not as_json:
        common.show_findings(findings)
    if live:
        findings += run_with_clock(lambda: _call_service(fleet, clock, quiet=as_json), clock)
    if as_json:
        common.show_json(findings)
    raise typer.Exit(0 if all(finding.ok for finding in findings) else FleetError.exit_code)


async def _call_service(fleet: Fleet, clock: RunClock, *, quiet: bool) -> list[Finding]:
    """Call the model service, and show each result as it arrives."""
    findings = []
    clock.time("calling the model service")
    async for finding in live_findings(fleet):
        findings.append(finding)
        if not quiet:
            clock.stop()
            common.show_findings([finding])
            clock.time("calling the model service")
    return findings


async def examine(
    fleet: Fleet, repository: Path, *, gate: bool = False, clock: RunClock | None = None
) -> list[Finding]:
    """Check all requirements of a run. Only writes a probe file in the state directory."""
    return [
        python_finding(platform.python_version(), sys.executable),
        await _git(),
        await _sandbox(fleet),
        await _model(fleet),
        _state(fleet),
        await _worktrees(fleet),
        _disk(fleet),
        _capacity(fleet),
        *(await _repository(repository, fleet)),
        *_tool_chains(fleet),
        *(await _gate_findings(fleet, repository, gate=gate, progress=clock.begin if clock is not None else None)),
        *worker_findings(fleet),
        *[
            finding
            for feature in FEATURES.values()
            if feature.findings and (not feature.on or fleet.config.is_set(feature.on))
            async for finding in load_part(feature.findings)(fleet)
        ],
    ]


def python_finding(version: str, path: str) -> Finding:
    if version in TESTED_PYTHONS:
        return Finding("python", ok=True, says=f"{version} at {path}")
    tested = ", ".join(TESTED_PYTHONS)
    return Finding("python", ok=True, says=f"{version} at {path}: not tested (tested with {tested})", warning=True)


async def _git() -> Finding:
    fix = "install git 2.39 or newer: apt-get install git"
    if shutil.which("git") is None:
        return Finding("git", ok=False, says="not found", fix=fix)
    version = text((await ask_git("--version")).stdout).strip()
    ok = tuple(map(int, re.findall(r"\d+", version)[:2])) >= OLDEST_GIT
    return Finding("git", ok=ok, says=version, fix="" if ok else fix)


async def _sandbox(fleet: Fleet) -> Finding:
    settings = fleet.wiring.worktrees
    if settings.box.sandbox == "none":
        says = "disabled by configuration: commands from models run as you"
        return Finding("sandbox", ok=True, says=says, fix="use --sandbox bubblewrap", warning=True)
    try:
        problems = await find_sandbox_problems(settings)
    except FleetError as error:
        return Finding("sandbox", ok=False, says=f"not available: {error.message}", fix=error.hint)
    if problems:
        fix = "see docs/sandbox.md: runs do not start until this is fixed"
        return Finding("sandbox", ok=False, says="; ".join(problems), fix=fix)
    calls = "system calls are filtered"
    if not settings.box.syscall_filter:
        calls = "system calls are not filtered (disabled by configuration)"
    elif filter_program() is None:
        calls = f"system calls are not filtered (no filter for {platform.machine()})"
    says = f"bubblewrap: commands can't read, write or connect outside (tested); {calls}"
    return Finding("sandbox", ok=True, says=says, warning="not filtered" in calls)


async def _model(fleet: Fleet) -> Finding:
    url = fleet.wiring.base_url
    try:
        fleet.wiring.require_models()
    except FleetError as error:
        return _without_models(fleet, error)
    if not url:
        service, region = fleet.config.models.service, fleet.wiring.access.region or "the region of your profile"
        says = f"{service} in {region}, with the credentials of its tools (not called: use --live)"
        return Finding("model", ok=True, says=says)
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with anyio.fail_after(CONNECT_S):
            async with await anyio.connect_tcp(host, port):
                pass
    except (OSError, TimeoutError):
        return Finding("model", ok=False, says=f"can't reach {url}", fix="check the network and --base-url")
    name = fleet.config.models.api_key_env
    has_key = bool(fleet.environ.get(name, "").strip())
    key = f"API key from {name}" if has_key else f"{name} is not set"
    if fleet.config.models.service != "api":
        key = f"{fleet.config.models.service}, with the credentials of its tools"
    says = f"{url} is reachable, {key} (not called: use --live, for less than a cent)"
    ignored = fleet.wiring.ignored_service
    return Finding("model", ok=True, says=says, fix=ignored, warning=bool(ignored))


def _without_models(fleet: Fleet, error: FleetError) -> Finding:
    """A missing key is only a warning if some workers are programs, which do not require one."""
    programs, name = sorted(fleet.wiring.modelless_workers), fleet.config.models.api_key_env
    if not programs:
        return Finding("model", ok=False, says=error.message, fix=error.hint)
    says = f"{name} is not set: fleet can't call models, so you handle failures instead of the planner"
    needless = f"not required for `fleet run --plan PLAN` if all its workers are programs: {', '.join(programs)}"
    return Finding("model", ok=True, says=says, fix=f"{needless}. Otherwise: {error.hint}", warning=True)


def _tool_chains(fleet: Fleet) -> Iterator[Finding]:
    """The tool chains in the home, visible in the sandbox or not."""
    shown, found = fleet.config.box.tool_chains, found_in(fleet.wiring.home)
    hidden = [name for name in found if name not in shown]
    if shown or hidden:
        says = (
            f"visible in the sandbox: {', '.join(shown) or 'none'}; hidden in your home: {', '.join(hidden) or 'none'}"
        )
        wanted = ", ".join(f'"{name}"' for name in (*shown, *hidden))
        fix = f"if the gate requires them: box.tool_chains = [{wanted}] in your own configuration" if hidden else ""
        yield Finding("tool chains", ok=True, says=says, fix=fix)


async def _gate_findings(fleet: Fleet, repository: Path, *, gate: bool, progress: Progress | None) -> list[Finding]:
    checks, trees = fleet.config.checks, fleet.config.worktrees
    tries = [feature.tries for feature in FEATURES.values() if feature.tries]
    if not (gate and tries) or not (checks.gate.strip() or trees.setup.strip()):
        return [_gate(fleet)]
    try:
        tried = [finding for place in tries async for finding in load_part(place)(fleet, repository, progress)]
    except FleetError as error:
        return [Finding("gate", ok=False, says=f"can't run: {error.message}", fix=error.hint)]
    return [*tried, *([] if checks.gate.strip() else [_gate(fleet)])]


def _gate(fleet: Fleet) -> Finding:
    """The configured gate. `--try` runs it."""
    gate = fleet.config.checks.gate.strip()
    if not gate:
        says = "not configured: subtasks land after their own checks only"
        fix = "run `fleet init` to detect a test command, or set checks.gate in fleet.toml"
        return Finding("gate", ok=True, says=says, fix=fix, warning=True)
    return Finding("gate", ok=True, says=f"{safe(gate, limit=100)} (not run: use --try)")


def _state(fleet: Fleet) -> Finding:
    try:
        make_state_dir(fleet.state_dir)
    except FleetError as error:
        return Finding("state", ok=False, says=error.message, fix=error.hint)
    return Finding("state", ok=True, says=f"{fleet.state_dir} is writable")


async def _worktrees(fleet: Fleet) -> Finding:
    try:
        choice = await choose_kind(fleet.wiring.worktrees, fleet.state_dir)
    except FleetError as error:
        return Finding("worktrees", ok=False, says=error.message, fix=error.hint)
    return Finding("worktrees", ok=True, says=f"{choice.kind} ({choice.why})")


def _disk(fleet: Fleet) -> Finding:
    path = fleet.state_dir
    folder = next(folder for folder in (path, *path.parents) if folder.exists())
    free = shutil.disk_usage(folder).free / 1e9
    ok = free >= LEAST_FREE_GB
    fix = "" if ok else "free some disk space with `fleet clean --apply`, or set FLEET_STATE_DIR to another disk"
    return Finding("disk", ok=ok, says=f"{free:.1f} GB free for worktrees", fix=fix)


def _capacity(fleet: Fleet) -> Finding:
    wanted = as_policy(fleet.config).workers
    supply = capacity(fleet.state_dir, wanted=wanted, free_bytes=fleet.wiring.worktrees.limits.free_bytes)
    if supply.workers >= wanted:
        return Finding(
            "capacity", ok=True, says=f"open files, processes and disk space are enough for {wanted} workers"
        )
    fits = f"enough for {max(0, supply.workers)} of {wanted} workers"
    return Finding("capacity", ok=supply.workers > 0, says=f"{supply.why}: {fits}", fix=supply.fix, warning=True)


async def _repository(path: Path, fleet: Fleet) -> list[Finding]:
    if shutil.which("git") is None:
        return [Finding("repository", ok=False, says=f"can't read {path} without git", fix="install git first")]
    try:
        target = await inspect(path)
        await refuse_branch(target, result_branch(ANY_RUN))
        usual = await customs(target.git, target.base)
    except FleetError as error:
        return [Finding("repository", ok=False, says=error.message, fix=error.hint)]
    except EffectError as error:
        return [Finding("repository", ok=False, says=f"{path}: {error.failure.summary}")]
    notes = f" ({'; '.join(target.warnings)})" if target.warnings else ""
    says = f"{target.root} at {target.base_name} {target.base[:7]}{notes}"
    return [Finding("repository", ok=True, says=says), *_signatures(usual, fleet)]


def _signatures(usual: CommitConventions, fleet: Fleet) -> Iterator[Finding]:
    """A warning if the repository's commits are signed, but the commits of `fleet merge` are not."""
    wanted = [("signed", 'git.sign = "ssh"')] if usual.signs and not fleet.config.git.sign else []
    if usual.signs_off and not fleet.config.git.sign_off:
        wanted.append(("signed off", "git.sign_off = true"))
    if wanted:
        hows, keys = zip(*wanted, strict=True)
        says = f"the latest commits are {' and '.join(hows)}, but commits merged by fleet are not"
        fix = f"to do the same, set {' and '.join(keys)} in your own configuration (docs/guides/taking.md)"
        yield Finding("signatures", ok=True, says=says, fix=fix, warning=True)


# ---- workers --------------------------------------------------------------------------------------------------------


def worker_findings(fleet: Fleet) -> Iterator[Finding]:
    """Check the settings and the program of each configured worker."""
    try:
        workers, _ = fleet.wiring.workers, fleet.wiring.ladders
    except FleetError as error:
        yield Finding("worker", ok=False, says="workers: invalid configuration", fix=str(error))
        return
    for name, settings in workers.items():
        fix = "; ".join(problems_of(name, settings)) or _program_fix(name, settings, fleet)
        yield Finding("worker", ok=not fix, says=f"{name}: {_description(settings, fleet)}", fix=fix)


def _description(settings: WorkerSettings, fleet: Fleet) -> str:
    parts = [settings.kind]
    if settings.kind == "acp" and not settings.calls_models:
        parts.append("with its own model")
    elif settings.kind != "command":
        parts.append(" → ".join(settings.rungs or settings.choices) or fleet.config.models.worker)
    if settings.words:
        parts.append(f"runs {settings.words[0]}")
    elif settings.kind == "claude-code" and (program := program_of(settings)):
        parts.append(f"runs {program}")
    if settings.hosts:
        parts.append(f"may fetch from {', '.join(settings.hosts)}")
    if settings.network:
        parts.append("with network access")
    return ", ".join(parts)


def _program_fix(name: str, settings: WorkerSettings, fleet: Fleet) -> str:
    """The fix for a program that the worker can't run, or an empty string."""
    if settings.kind == "claude-code" and program_of(settings) is None:
        return f"{program_name(settings)} is not in PATH: install it, or set workers.{name}.command to its path"
    if settings.kind not in {"acp", "command"} or not settings.words:
        return ""
    program, worktrees = settings.words[0], fleet.wiring.worktrees
    if "/" in program and not program.startswith("/"):
        return ""  # a file of the repository
    in_box = worktrees.box.sandbox != "none"
    path = os.pathsep.join((*settings.path, *worktrees.box.path, *SYSTEM_PATH)) if in_box else None
    file = shutil.which(program, path=path)
    if file is None:
        return f"{program} is not in the sandbox's PATH: add its folder to workers.{name}.path and read_only"
    visible = [Path("/usr"), *(Path("/", folder) for folder in ("bin", "sbin", "lib"))]
    visible += map(Path, (*worktrees.box.read_only, *settings.read_only))
    if not in_box or any(Path(file).is_relative_to(folder) for folder in visible):
        return ""
    return f"{file} is not visible in the sandbox: add its folder to workers.{name}.read_only"


# ---- the model service -----------------------------------------------------------------------------------------------
# The checks of `fleet doctor --live`, for less than a cent and in limited time.


CALL = Timeouts(silence_s=30.0, call_s=60.0)
_LONGEST = 500  # characters of a service's message


async def live_findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Call the service and report the result and the fix of each call."""
    try:
        fleet.wiring.require_models()
    except FleetError as error:
        yield Finding("live", ok=False, says=f"not called: {error.message}", fix=error.hint)
        return
    wiring = fleet.wiring
    async with open_client(wiring.access, CALL) as client:
        probes = Probes(client, wiring.access, subjects(fleet), prices_of(wiring.config.models))
        async for outcome in probes.run():
            yield _of_call(outcome)
    if settings := probes.missing.settings():
        yield Finding(
            "settings", ok=False, says="the service does not support all features", fix=f"set in [models]: {settings}"
        )
    spending = probes.spending
    spent = f"at most ${spending.spent:.4f} of ${spending.most:.2f}"
    says = f"{spent} for {spending.calls} calls, according to the price table"
    yield Finding("spent", ok=True, says=says, dollars=spending.spent)


def subjects(fleet: Fleet) -> list[Subject]:
    """Each configured model and effort, with its users."""
    planner, usual = fleet.config.planner, fleet.config.models.worker
    users: dict[tuple[str, str | None], list[str]] = {(planner.model, planner.effort): ["the planner"]}
    for name, worker in fleet.wiring.workers.items():
        if not worker.calls_models:
            continue
        for rung in worker.rungs or worker.choices or (usual,):
            users.setdefault(parse_rung(rung) if worker.rungs else (rung, None), []).append(name)
    return [Subject(model, effort, ", ".join(names)) for (model, effort), names in users.items()]  # type: ignore[arg-type] # parsed


def _of_call(outcome: ProbeOutcome) -> Finding:
    came = outcome.came
    is_skipped = came.verdict == "not tried"
    says = safe(f"{outcome.about}: {outcome.tried}: {'skipped: ' * is_skipped}{came.text}", limit=_LONGEST)
    fix = safe(came.fix, limit=_LONGEST)
    return Finding("live", ok=came.verdict != "fails", says=says, fix=fix, dollars=outcome.dollars, warning=is_skipped)
