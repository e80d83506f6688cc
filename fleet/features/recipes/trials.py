"""Try recipes in the sandbox until one passes for each part of a repository.

    settled = await Trials(settings, tree, ask, report).settle(find_recipes(tree))

If a trial lacks something, it is repeated with a recipe that adds it. Each permission is requested once. Trials run
like in a run: in a sandbox, on a worktree of HEAD.
"""

import os
import shutil
import stat
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from dashboards.text.formats import duration
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet
from fleet.app.wiring import Wiring
from fleet.config.schema import Config
from fleet.core.base.output import outdated
from fleet.core.facts.facts import CheckRun, Failure, SetupRun
from fleet.core.facts.failures import how
from fleet.core.plans.plan import Criterion
from fleet.core.verdicts.summaries import starts_pytest
from fleet.core.verdicts.verdict_files import NO_RESULTS, is_analysis
from fleet.engine.checks import NO_REPORT
from fleet.errors import FleetError
from fleet.features.recipes.find import FoundCommands, ProjectPart
from fleet.features.recipes.init_view import TrialView, TriedVerdict, trial_view
from fleet.features.recipes.lacking import ran_nothing, remedies, wants_network
from fleet.features.recipes.recipe import Recipe, together
from fleet.features.recipes.tree import Tree, usable_names
from fleet.ports.worktrees import EffectError
from fleet.read.base_view import Finding
from fleet.runs.run_folder import make_state_dir
from worktrees.base.settings import WorktreeSettings
from worktrees.git.program import ask_git, fields
from worktrees.leases.run_worktrees import open_trial_worktrees
from worktrees.sandbox.box import require_bubblewrap
from worktrees.sandbox.tool_chains import found_in, shown_by
from worktrees.store.store import home_of
from worktrees.target.target import Target, inspect

# ---- trial -----------------------------------------------------------------------------------------------------------
# Runs the setup command and the gate, or another command, in the sandbox on a commit, without a run, plan or model.
#
# The worktree, sandbox, setup command, included files and limits are the same as in a run. The repository stays
# unchanged, and the state directory only keeps the logs of the last trial.


LOGS = "tried"  # the folder of the logs, next to the store
Progress = Callable[[Literal["set-up", "gate", "command"], str], None]
"""Called when a step starts, with its command."""


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """The repository, commit and command of a trial."""

    repository: Path
    base: str | None = None
    """A commit, branch or tag, or None for HEAD."""
    command: str | None = None
    """A command to run instead of the configured gate."""


async def try_out(
    config: Config, environ: Mapping[str, str], order: TrialOrder, progress: Progress | None = None
) -> TrialView:
    """Set up a worktree of the commit, and run the gate or the command in it.

    Failures are part of the result. Raises `FleetError` if the repository, the sandbox or the state directory is not
    available.
    """
    begun = time.monotonic()
    if shutil.which("git") is None:
        raise FleetError("git is not installed or not in PATH", hint="install it with `apt-get install git`")
    target = await inspect(order.repository, order.base)
    wiring = Wiring(config, environ)
    settings = wiring.worktrees
    require_bubblewrap(settings)
    make_state_dir(settings.state_dir)
    logs = home_of(settings.state_dir, target)
    shutil.rmtree(logs / LOGS, ignore_errors=True)
    on_setup = (lambda command: progress("set-up", command)) if progress is not None else None
    settings = replace(settings, check_logs=logs / LOGS, on_setup=on_setup)
    setup, check, failure = await _try_in(target, settings, _criterion(wiring, order), order, progress)
    seconds = round(time.monotonic() - begun, 3)
    return trial_view(
        repository=str(target.root),
        base=target.base,
        base_name=target.base_name,
        seconds=seconds,
        setup=setup,
        check=check,
        failure=failure,
        logs=str(logs),
        notes=target.warnings,
    )


def _criterion(wiring: Wiring, order: TrialOrder) -> Criterion | None:
    if order.command is None:
        return next(iter(wiring.gate.criteria), None)
    limit_s = wiring.config.checks.gate_timeout_s
    command = Criterion(criterion="the command", run=order.command, timeout_s=limit_s, fails_before=False)
    return command if order.command.strip() else None


async def _try_in(
    target: Target,
    settings: WorktreeSettings,
    criterion: Criterion | None,
    order: TrialOrder,
    progress: Progress | None,
) -> tuple[SetupRun | None, CheckRun | None, Failure | None]:
    check, failure = None, None
    async with open_trial_worktrees(target, settings) as worktrees:
        try:
            async with worktrees.lease(target.base) as lease:
                if criterion is not None:
                    if progress is not None:
                        progress("gate" if order.command is None else "command", criterion.run or "")
                    check = await lease.check(criterion)
        except EffectError as error:
            failure = error.failure
        setups = worktrees.finished_setups()
    if check is not None and criterion is not None:
        check = _require_test_report(check, criterion, settings)
    return (setups[-1] if setups else None), check, failure


def _require_test_report(check: CheckRun, criterion: Criterion, settings: WorktreeSettings) -> CheckRun:
    """Apply the rules of a run: a success without a required test report is a failure, and all findings are old."""
    reported = check.ran_tests is not None
    if is_analysis(criterion):
        if reported:
            return check.model_copy(update={"passed": not check.timed_out})
        return _refuse(check, NO_RESULTS.format(tests=criterion.tests))
    owes = criterion.tests is not None or starts_pytest(check.command)
    if not (settings.checks.expected_tests and check.passed and not reported and owes):
        return check
    return _refuse(check, NO_RESULTS.format(tests=criterion.tests) if criterion.tests else NO_REPORT)


def _refuse(check: CheckRun, why: str) -> CheckRun:
    return check.model_copy(update={"passed": False, "output": f"{check.output}\n{why}".strip(), "causes": (why,)})


# ---- recipe trials ---------------------------------------------------------------------------------------------------


MOST_TRIES = 8  # per part
MOST_REMEDIES = 3  # remedies on top of each other
LARGEST_LOG = 2 * 1024 * 1024  # bytes

Permission = Literal["network", "tool chain"]


Ask = Callable[[Permission, str, str], bool]
"""Asks the user for a permission with a name and a reason: network access for setup commands, or a tool chain."""
Report = Callable[["Tried"], None]
"""Shows a trial to the user before it runs, and again with its result."""


class Tried(NamedTuple):
    """One trial."""

    folder: str
    recipe: Recipe
    why: str
    verdict: TriedVerdict | None = None
    """None before the trial."""
    trial: TrialView | None = None


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """The settings shared by all trials of one invocation."""

    config: Config
    environ: Mapping[str, str]
    repository: Path
    tool_chain_of: Callable[[str], str]
    """Returns the tool chain in the home with a program that the sandbox lacks, or empty if there is none."""
    other_chain_of: Callable[[str], str]
    """Returns the tool chain in the home with a program, even if the sandbox has it too, or empty if there is none."""
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of all trials."""

    recipe: Recipe | None
    verdict: TriedVerdict
    left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class Trials:
    """The trials of one repository, and the permissions given so far."""

    settings: TrialSettings
    tree: Tree
    ask: Ask
    report: Report
    tried: list[Tried] = field(default_factory=list)
    allowed: dict[tuple[Permission, str], bool] = field(default_factory=dict)

    async def settle(self, found: FoundCommands) -> Settled:
        """Find a passing recipe for the entire repository, or for as many of its parts as possible."""
        if len(found.parts) > 1:
            whole = await self._first_green(ProjectPart("", found.whole))
            if whole is not None:
                return Settled(whole, self._worth((whole,)))
        results = [(part, await self._first_green(part)) for part in found.parts]
        green = [recipe.within(part.folder) for part, recipe in results if recipe is not None]
        left_out = tuple(part.folder or "." for part, recipe in results if recipe is None)
        if not green:
            return Settled(None, "red", left_out)
        recipe = together(green)
        passed = ("green", "no tests")
        if (
            len(green) > 1
            and (await self._try(ProjectPart("", ()), recipe, "all parts together")).verdict not in passed
        ):
            return Settled(recipe, "red", left_out)
        return Settled(recipe, self._worth(green), left_out)

    def _worth(self, recipes: Iterable[Recipe]) -> TriedVerdict:
        """Return the verdict for passing recipes: `no tests` if none of them ran a test."""
        empty = {tried.recipe.identity for tried in self.tried if tried.verdict == "no tests"}
        return "no tests" if all(recipe.identity in empty for recipe in recipes) else "green"

    async def _first_green(self, part: ProjectPart) -> Recipe | None:
        """Return the first recipe that passes, or else one that passes without running tests."""
        waiting = deque((recipe, recipe.why, 0) for recipe in part.recipes)
        seen = set[tuple[object, ...]]()
        empty: Recipe | None = None
        tries = 0
        while waiting and tries < MOST_TRIES:
            recipe, why, depth = waiting.popleft()
            if recipe.identity in seen:
                continue
            seen.add(recipe.identity)
            tried = await self._try_allowed(part, recipe, why)
            tries += tried.verdict != "not tried"
            if tried.verdict == "green":
                return recipe
            if tried.verdict == "no tests":
                empty = empty or recipe
            elif tried.trial is not None and depth < MOST_REMEDIES:
                found = remedies(recipe, _output(tried.trial), self._tree_of(part))
                waiting.extendleft((each, because, depth + 1) for each, because in reversed(list(found)))
        return empty

    def _tree_of(self, part: ProjectPart) -> Tree:
        return self.tree.at(part.folder) if part.folder else self.tree

    # ---- one trial

    async def _try_allowed(self, part: ProjectPart, recipe: Recipe, why: str) -> Tried:
        """Request permissions and try a recipe. Try it again if its setup command turns out to need the network."""
        for chain in dict.fromkeys(filter(None, map(self.settings.tool_chain_of, recipe.programs))):
            self._may("tool chain", chain, f"{recipe.kind} needs programs in your home, which the sandbox hides")
        if recipe.needs_network and not self._may("network", "", recipe.setup):
            return self._note(Tried(part.folder, recipe, why, "not tried"))
        tried = await self._try(part, recipe, why)
        if tried.trial is not None and tried.verdict in {"red", "setup failed"} and self._may_replace(tried.trial):
            tried = await self._try(part, recipe, f"{why}, with a newer tool chain from your home")
        failed = tried.trial is not None and tried.verdict == "setup failed" and wants_network(_output(tried.trial))
        if failed and not self._has_network and self._may("network", "", recipe.setup):
            return await self._try(part, recipe, f"{why}, with network access for its setup command")
        return tried

    def _may_replace(self, trial: TrialView) -> bool:
        """Return whether a program is too old, and the user lets the sandbox use a newer one from the home."""
        old = outdated(_output(trial))
        chain = self.settings.other_chain_of(old.subject) if old is not None else ""
        if (
            old is None
            or not chain
            or chain in self.settings.config.box.tool_chains
            or ("tool chain", chain) in self.allowed
        ):
            return False
        return self._may("tool chain", chain, f"{old.subject} on this machine is too old: {old.line.strip()}")

    async def _try(self, part: ProjectPart, recipe: Recipe, why: str) -> Tried:
        whole = recipe.within(part.folder)
        self.report(Tried(part.folder, whole, why))
        config = config_with(self.settings.config, whole, self.settings.repository, self.granted)
        order = TrialOrder(self.settings.repository)
        trial = await try_out(config, self.settings.environ, order, self.settings.progress)
        return self._note(Tried(part.folder, whole, why, _verdict(trial), trial))

    def _note(self, tried: Tried) -> Tried:
        self.tried.append(tried)
        self.report(tried)
        return tried

    # ---- permissions

    @property
    def granted(self) -> tuple[tuple[Permission, str], ...]:
        """The permissions given by the user."""
        return tuple(each for each, is_allowed in self.allowed.items() if is_allowed)

    @property
    def _has_network(self) -> bool:
        return self.settings.config.worktrees.setup_network != "none" or ("network", "") in self.granted

    def _may(self, what: Permission, name: str, why: str) -> bool:
        """Return whether something is allowed. The user is asked once."""
        if what == "network" and self._has_network:
            return True
        if what == "tool chain" and name in self.settings.config.box.tool_chains:
            return True
        if (what, name) not in self.allowed:
            self.allowed[what, name] = self.ask(what, name, why)
        return self.allowed[what, name]


def chain_of(program: str, home: Path, has_program: Callable[[str], bool]) -> str:
    """Return the tool chain in the home with a program that the sandbox lacks, or empty if there is none."""
    if has_program(program):
        return ""
    folders = {name: shown_by([name], home).path for name in found_in(home)}
    return next((name for name, shown in folders.items() if any(Path(each, program).exists() for each in shown)), "")


def config_with(
    config: Config, recipe: Recipe, repository: Path, granted: Iterable[tuple[Permission, str]] = ()
) -> Config:
    """Return the configuration with the settings of a recipe and the given permissions."""
    chains = tuple(name for what, name in granted if what == "tool chain")
    network = "base" if ("network", "") in granted else config.worktrees.setup_network
    places = {"{repo}": str(repository.absolute())}

    def expanded(values: Iterable[str]) -> tuple[str, ...]:
        return tuple(value.replace("{repo}", places["{repo}"], 1) for value in values)

    box, trees = config.box, config.worktrees
    variables = {name: each.value for name, each in recipe.environment.items()}
    box = box.model_copy(
        update={
            "read_only": (*box.read_only, *expanded(each.value for each in recipe.read_only)),
            "path": (*box.path, *expanded(each.value for each in recipe.path)),
            "environment": {**box.environment, **variables},
            "tool_chains": tuple(dict.fromkeys((*box.tool_chains, *chains))),
        }
    )
    include = tuple(dict.fromkeys((*trees.include, *(each.value for each in recipe.include))))
    trees = trees.model_copy(update={"setup": recipe.setup, "include": include, "setup_network": network})
    checks = config.checks.model_copy(update={"gate": recipe.gate_command})
    return config.model_copy(update={"box": box, "worktrees": trees, "checks": checks})


def _verdict(trial: TrialView) -> TriedVerdict:
    if trial.verdict == "green":
        return "no tests" if ran_nothing(_output(trial)) else "green"
    return "not possible" if trial.verdict == "no gate" else trial.verdict


def _output(trial: TrialView) -> str:
    """Return the full output of the failed command, or else of the gate."""
    check = trial.failed or trial.check
    if check is None:
        return "" if trial.failure is None else f"{trial.failure.summary}\n{trial.failure.evidence}"
    return _log(trial, check) or check.output


def _log(trial: TrialView, check: CheckRun) -> str:
    if not check.log:
        return ""
    try:
        with Path(trial.logs, check.log).open("rb") as file:
            return file.read(LARGEST_LOG).decode("utf-8", "replace")
    except OSError:
        return ""


# ---- project ---------------------------------------------------------------------------------------------------------
# Reads a checkout to detect recipes: file names from git, and the start of each file. Its contents may be hostile.
#
# Symbolic links are not followed, reads don't block on pipes, and sizes and counts are limited. Detection does not run
# any code of the repository.


LARGEST_TEXT = 256 * 1024  # bytes read per file
MOST_TEXTS = 400
MOST_IGNORED = 2_000


async def read_project(root: Path, has_program: Callable[[str], bool]) -> Tree:
    """Read the checkout at `root` for detection. Raises `FleetError`."""
    tracked = await _list(root, "--cached")
    ignored = await _list(root, "--others", "--ignored", "--exclude-standard", "--directory")
    names = usable_names(tracked)
    few = usable_names(ignored)[:MOST_IGNORED]
    return Tree(names, _reader(root), few, has_program, known=frozenset(names))


async def _list(root: Path, *options: str) -> list[str]:
    env = {"GIT_LITERAL_PATHSPECS": "0"}
    answer = await ask_git("-C", str(root), "ls-files", "-z", *options, env=env)
    if answer.exit_code != 0:
        raise FleetError(
            f"git can't list the files of {root}: {answer.stderr.decode('utf-8', 'replace').strip()[-200:]}"
        )
    return fields(answer.stdout)


def _reader(root: Path) -> Callable[[str], str]:
    real, count = os.path.realpath(root), 0

    @cache
    def read(name: str) -> str:
        nonlocal count
        count += 1
        path = os.path.join(real, name)  # noqa: PTH118 - compared with the real path, as text
        if count > MOST_TEXTS or os.path.realpath(path) != path:
            return ""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return ""
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return ""
            return file.read(LARGEST_TEXT).decode("utf-8", "replace")

    return read


# ---- trial findings --------------------------------------------------------------------------------------------------
# Checks of `fleet doctor`: try the setup command and the gate.


SHOWN = 3  # lines of a failed gate


async def trial_findings(fleet: Fleet, repository: Path, progress: Progress | None) -> AsyncIterator[Finding]:
    """Try the setup command and the gate."""
    trial = await try_out(fleet.config, fleet.environ, TrialOrder(repository), progress)
    fix = "; ".join(trial.advice) or "see the output of `fleet try`"
    if trial.setup is not None:
        yield _command("set-up", trial.setup.check, fix)
    if trial.check is not None:
        yield _command("gate", trial.check, fix)
    if trial.verdict == "not possible" and trial.failure is not None:
        yield Finding("gate", ok=False, says=safe(trial.failure.summary, limit=200), fix=fix)


def _command(what: str, check: CheckRun, fix: str) -> Finding:
    causes = "".join(f" | {safe(line, limit=160)}" for line in check.causes[:SHOWN])
    result = (
        f"passed in the sandbox after {duration(check.seconds)}"
        if check.passed
        else f"{how(check)} in the sandbox{causes}"
    )
    says = f"{safe(check.command, limit=100)}: {result}"
    return Finding(what, ok=check.passed, says=says, fix="" if check.passed else safe(fix, limit=1000))
