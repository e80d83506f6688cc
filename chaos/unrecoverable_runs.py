"""Permanent faults of a run's environment: a revoked key, used-up credit, a retired model, a useless planner, no
sandbox.

All work waits or fails. The run must end with a question to a human, or immediately with a message if no money was
spent yet. It must not report success or continue forever. The seed determines which agent meets the fault first, and
when.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from random import Random

from chaos.faults import EVER, NOTHING, Episode, Json, solve, subtask, wrong
from chaos.play import Played, play
from chaos.unrecoverable_subtasks import Verdict, keeps_limits
from tests.e2e.stage import Going, Stage
from tests.worktrees.conftest import git

TIMEOUT_S = 300.0
PERSON = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
GIVE_UP_SOON = {"FLEET_MODELS_ASK_AFTER_MINUTES": "0.03", "FLEET_MODELS_GIVE_UP_AFTER_MINUTES": "0.05"}
MONTH_S = 2_592_000
EXIT_CODES = {"partial": 1, "failed": 3}
SPENT = {"type": "rate_limit_error", "message": "spent", "details": {"error_code": "spend_limit_reached"}}
USELESS_ANSWERS: tuple[Json, ...] = (
    {"do": "mute"},
    {"do": "mute", "stop_reason": "max_tokens"},
    {"do": "mute", "stop_reason": "refusal"},
    {"do": "malformed", "how": "json"},
    {"do": "malformed", "how": "schema"},
    {"do": "malformed", "how": "tool"},
)


@dataclass(frozen=True)
class Setting:
    """A run that can't succeed: its episodes and its fault."""

    episodes: tuple[Episode, ...]
    planner: Json = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    meanwhile: Callable[[Stage, Going], None] | None = None


@dataclass(frozen=True)
class LastingFault:
    """A row of the table in docs/internals/reliability.md."""

    row: int
    setting: Callable[[Random, Path], Setting]
    message: str = ""
    """The message that it ends with instead of a question."""


def _work(name: str, behaviour: Json, **more: object) -> Episode:
    return Episode(NOTHING, (subtask(name, **more),), {name: [behaviour]})


def on_calls(**behaviour: object) -> Callable[[Random, Path], Setting]:
    """A fault of every call: of all workers, each in a random turn, or of the planner when a failure calls it."""

    def setting(chance: Random, _: Path) -> Setting:
        if chance.random() < 0.5:
            episodes = (_work("fails", wrong("fails")), _work("fine", solve("fine")))
            return Setting(episodes, {"once_planned": {**behaviour, "times": EVER}}, GIVE_UP_SOON)
        workers = [
            _work(name, {**behaviour, "times": EVER, "turn": chance.randrange(3), "then": solve(name)})
            for name in ("one", "two", "three")
        ]
        return Setting(tuple(workers), {}, GIVE_UP_SOON)

    return setting


def _useless_planner(chance: Random, _: Path) -> Setting:
    """The planner is useless from the first call on."""
    return Setting((_work("one", solve("one")),), {"faults": [{**chance.choice(USELESS_ANSWERS), "times": EVER}]})


def _useless_later(chance: Random, _: Path) -> Setting:
    """Make the planner useless after it has planned. Planned work continues without it."""
    episodes = (_work("fails", wrong("fails")), _work("fine", solve("fine")))
    return Setting(episodes, {"once_planned": {**chance.choice(USELESS_ANSWERS), "times": EVER}})


def _invalid_plan(chance: Random, _: Path) -> Setting:
    """The planner repeats an invalid plan, whatever the reply."""
    mistakes: tuple[dict[str, object], ...] = (
        {"depends_on": ["two"]},
        {"depends_on": ["unknown"]},
        {"touches": ["../outside.txt"]},
        {"worker": "unknown"},
    )
    return Setting(
        (_work("one", solve("one"), **chance.choice(mistakes)), _work("two", solve("two"), depends_on=["one"]))
    )


def _red_base(_: Random, __: Path) -> Setting:
    return Setting((_work("one", solve("one")),), environment={"FLEET_CHECKS_GATE": "echo red; exit 1"})


def _no_sandbox(chance: Random, folder: Path) -> Setting:
    """Bubblewrap is removed while the run works."""
    programs = folder / "programs"
    programs.mkdir(parents=True)
    for name in ("git", "sh", "bwrap"):
        (programs / name).symlink_to(shutil.which(name) or name)
    calls = chance.randrange(1, 6)

    def remove(stage: Stage, going: Going) -> None:
        stage.wait("r", lambda state: state.spent.calls >= calls, going)
        (programs / "bwrap").unlink()

    work = tuple(_work(name, {**solve(name), "turns": 3}) for name in ("one", "two", "three"))
    return Setting(work, {}, {"PATH": str(programs)}, remove)


def _moved_branch(chance: Random, folder: Path) -> Setting:
    """Commit onto the result branch during the run, like a user would."""
    names = [f"step-{number}" for number in range(4)]
    after = chance.randrange(1, 3)

    def commit(stage: Stage, going: Going) -> None:
        stage.wait("r", lambda state: state.published is not None and state.commits >= after, going)
        repository = folder / "work"
        tree = git(repository, "rev-parse", "fleet/r^{tree}")
        mine = git(repository, *PERSON, "commit-tree", tree, "-p", "fleet/r", "-m", "mine")
        git(repository, "update-ref", "refs/heads/fleet/r", mine)

    work = (_work(name, solve(name), depends_on=names[max(0, at - 1) : at]) for at, name in enumerate(names))
    return Setting(tuple(work), meanwhile=commit)


LASTING_FAULTS: dict[str, LastingFault] = {
    "the key is revoked": LastingFault(10, on_calls(do="http", status=401, message="invalid x-api-key")),
    "the credit is spent": LastingFault(11, on_calls(do="http", status=402, message="your credit balance is too low")),
    "the spend limit is reached": LastingFault(
        3, on_calls(do="http", status=429, body=dumps({"type": "error", "error": SPENT}))
    ),
    "the model is retired": LastingFault(12, on_calls(do="http", status=404, message="model: retired")),
    "always overloaded": LastingFault(4, on_calls(do="http", status=529)),
    "always rate-limited": LastingFault(2, on_calls(do="http", status=429, retry_after=MONTH_S)),
    "a useless planner": LastingFault(43, _useless_planner),
    "a planner that becomes useless": LastingFault(43, _useless_later),
    "a plan that is never valid": LastingFault(42, _invalid_plan),
    "the base is red": LastingFault(36, _red_base, message="the gate is RED on the base"),
    "the result branch is someone else's": LastingFault(40, _moved_branch, message="does not include all landed work"),
    "the sandbox is gone": LastingFault(64, _no_sandbox),
}


def play_lasting_fault(kind: str, number: int, folder: Path, seed: int) -> Verdict:
    """One run of a kind, to its end."""
    run_folder = folder / f"lasting-{list(LASTING_FAULTS).index(kind)}-{number}"
    run_folder.mkdir(parents=True)
    setting = LASTING_FAULTS[kind].setting(Random(f"{seed}/{kind}/{number}"), run_folder)  # noqa: S311 - not a secret
    run = play(
        run_folder,
        setting.episodes,
        seed=seed,
        planner=setting.planner,
        more=setting.environment,
        meanwhile=setting.meanwhile,
        timeout_s=TIMEOUT_S,
    )
    return _verdict(kind, run)


def _verdict(kind: str, run: Played) -> Verdict:
    state, code, message = run.final, run.done.code, LASTING_FAULTS[kind].message
    ending = state.ending if state is not None else "failed"
    return Verdict(
        kind,
        asked=message in run.done.output if message else bool(run.state.questions),
        landed=ending == "landed" or code == 0,
        endless=ending is None or code != EXIT_CODES.get(ending),
        within_limits=state is None or keeps_limits(state),
        reason=f"{ending}: {state.ending_why if state is not None else ''}",
    )
